package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What nodes of one owner are made of is not changed by another who brings a package of the same name.
func TestTheFirstOwnerOfAPackageHasItsName(t *testing.T) {
	r, served := repository(t)
	r.Pools[1].Owner = func(file string) string { owner, _, _ := strings.Cut(file, "."); return owner }
	out := map[string]string{}
	r.LeftOut = func(file, why string) { out[file] = why }
	age := func(file string, hours time.Duration) {
		at := time.Now().Add(-hours * time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(served, "local", file), at, at))
	}
	put := func(file, version string, hours time.Duration) {
		control := fmt.Sprintf("Package: greeting\nVersion: %s\nArchitecture: all\nMaintainer: me <me@example.org>\nDescription: greets\n", version)
		require.NoError(t, os.WriteFile(filepath.Join(served, "local", file), deb(t, control, ".xz"), 0o644))
		age(file, hours)
	}
	index := func() string {
		clear(out)
		_, err := r.Write(t.Context())
		require.NoError(t, err)
		text, err := os.ReadFile(filepath.Join(served, "dists", Suite, indexPath))
		require.NoError(t, err)
		return string(text)
	}
	put("beta.edge.greeting.deb", "9", 1)
	put("alpha.edge.greeting.deb", "1", 2)
	text := index()
	assert.Contains(t, text, "Filename: local/alpha.edge.greeting.deb\n")
	assert.NotContains(t, text, "local/beta.")
	assert.Equal(t, map[string]string{"local/beta.edge.greeting.deb": "alpha brought greeting first, and has the name"}, out)

	put("alpha.edge.greeting.deb", "2", 0)
	put("alpha.lab.greeting.deb", "3", 0)
	text = index()
	assert.Contains(t, text, "Filename: local/alpha.edge.greeting.deb\n", "a version that is replaced loses no name")
	assert.Contains(t, text, "Filename: local/alpha.lab.greeting.deb\n")
	assert.NotContains(t, text, "local/beta.")

	for _, file := range []string{"alpha.edge.greeting.deb", "alpha.lab.greeting.deb"} {
		require.NoError(t, os.Remove(filepath.Join(served, "local", file)))
	}
	assert.Contains(t, index(), "Filename: local/beta.edge.greeting.deb\n", "the name is free again")
	assert.Empty(t, out)
}
