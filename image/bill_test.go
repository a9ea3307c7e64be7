package image

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
	"firstlight.dev/firstlight/image/sbom"
)

// TestTheBillNamesFirmware: who ships the image ships these files, whose licences are their makers'. What only builds it
// stays here.
func TestTheBillNamesFirmware(t *testing.T) {
	r, err := recipe.ReadFile("../assets/recipe.yaml")
	require.NoError(t, err)
	l, err := lock.ReadFile("../assets/recipe.lock")
	require.NoError(t, err)
	b := &build{r: r, l: l}

	licenses := map[string]string{}
	for _, p := range l.Root("firmware") {
		licenses[p.Name] = "LicenseRef-Debian-" + p.Name
	}
	require.Contains(t, licenses, "intel-microcode")
	listed := map[string]sbom.Package{}
	for _, p := range b.listDebs(licenses) {
		listed[p.Name] = p
	}
	for name, license := range licenses {
		assert.Equal(t, license, listed[name].License, name)
	}

	for _, p := range l.Root(r.Stick.Tools) {
		if roots := l.Debs[p.Name].Roots; len(roots) == 1 {
			assert.NotContains(t, listed, p.Name)
		}
	}
}
