package image

import (
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/recipe"
)

// TestNodesHaveEveryPlugin compares the names by which nodes call the program of CNI plugins with those that it knows.
func TestNodesHaveEveryPlugin(t *testing.T) {
	source, err := os.ReadFile("../assets/build/cni/main.go")
	require.NoError(t, err)
	var known []string
	for _, m := range regexp.MustCompile(`{"([a-z-]+)", [a-z]+\.Main}`).FindAllSubmatch(source, -1) {
		known = append(known, string(m[1]))
	}
	require.NotEmpty(t, known)

	r, err := recipe.ReadFile("../assets/recipe.yaml")
	require.NoError(t, err)
	program := r.Root("kube").Programs["cni"]
	var called []string
	for _, link := range slices.Sorted(maps.Keys(r.Root("kube").Links)) {
		if path.Dir(link) == path.Dir(program) {
			called = append(called, path.Base(link))
		}
	}
	assert.Equal(t, known, called)
}
