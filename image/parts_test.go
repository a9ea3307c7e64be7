package image

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/cache"
)

func TestEveryPartStandsBehindWhatItNeeds(t *testing.T) {
	b, err := repository(t).prepare(t.Context(), PlanOnly)
	require.NoError(t, err)
	before := map[string]bool{}
	for _, p := range b.parts {
		for _, need := range p.Needs {
			assert.True(t, before[need], "%s needs %s", p.Title(), need)
		}
		assert.False(t, before[p.Title()], "%s is there twice", p.Title())
		before[p.Title()] = true
	}
	assert.Equal(t, kindStick, b.parts[len(b.parts)-1].Kind)
}

func TestAPartIsGivenOnlyWhatItNeeds(t *testing.T) {
	b, err := repository(t).prepare(t.Context(), PlanOnly)
	require.NoError(t, err)
	p := Part{Kind: kindLayer, Name: "late", Needs: []string{"program init"}}
	_, _, err = b.complete(p)
	assert.EqualError(t, err, "make layer late: it needs program init, which no part before it is")
	b.made["program init"], b.made["unpacked tools"] = cache.Item{Path: "/a", Digest: "a"}, cache.Item{Path: "/b", Digest: "b"}
	in, from, err := b.complete(p)
	require.NoError(t, err)
	assert.Equal(t, Inputs{"program init": "a"}, in)
	assert.Equal(t, "/a", from.path("program init"))
	assert.Panics(t, func() { from.path("unpacked tools") })
}

// TestACodeChangeRebuildsWhatThatCodeMakes changes one package of the builder at a time.
func TestACodeChangeRebuildsWhatThatCodeMakes(t *testing.T) {
	cases := map[string][]string{
		"image/image.go":     {"stick"},
		"image/disk/disk.go": {"stick"},
		"image/oci/oci.go":   {"layer probe", "root file system", "stick"},
		"image/debian/install/install.go": {
			"artifact ramdisk", "layer probe", "packages box", "root file system", "stick",
		},
		"image/initramfs/initramfs.go": {"artifact ramdisk", "kernel and initramfs", "stick"},
	}
	for file, want := range cases {
		repo := repository(t)
		before, err := repo.prepare(t.Context(), PlanOnly)
		require.NoError(t, err)
		at := filepath.Join(repo.Top, file)
		text, err := os.ReadFile(at)
		require.NoError(t, err)
		require.NoError(t, os.Remove(at))
		// Under another name: only what is in the files counts.
		other := filepath.Join(filepath.Dir(at), "other.go")
		require.NoError(t, os.WriteFile(other, text, 0o644))
		renamed, err := repo.prepare(t.Context(), PlanOnly)
		require.NoError(t, err)
		assert.Empty(t, changedParts(before, renamed), file)

		require.NoError(t, os.WriteFile(other, append(text, "\nconst changed = 1\n"...), 0o644))
		after, err := repo.prepare(t.Context(), PlanOnly)
		require.NoError(t, err)
		assert.Equal(t, want, changedParts(before, after), file)
	}
}

func changedParts(before, after *build) []string {
	var titles []string
	for i, p := range before.parts {
		if p.Kind != kindProgram && !maps.Equal(p.Inputs, after.parts[i].Inputs) {
			titles = append(titles, p.Title())
		}
	}
	slices.Sort(titles)
	return titles
}
