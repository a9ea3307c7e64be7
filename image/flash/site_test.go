package flash_test

import (
	"bytes"
	"context"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/image/flash"
)

// siteOf are the files of a stick's SITE partition.
func siteOf(t *testing.T, s *stick) map[string]string {
	t.Helper()
	volume, err := fat.Open(bytes.NewReader(content(t, s, "SITE")))
	require.NoError(t, err)
	assert.Empty(t, volume.Check())

	entries, err := volume.List()
	require.NoError(t, err)
	out := map[string]string{}
	for _, e := range entries {
		b, err := volume.ReadFile(e.Path)
		require.NoError(t, err)
		out[e.Path] = string(b)
	}

	return out
}

// TestASiteOfItsOwn comes onto the stick in the place of the image's, and the image stays as it is.
func TestASiteOfItsOwn(t *testing.T) {
	m := stickImage(t, 1, 2, "site.yaml")
	site, err := flash.MakeSite(context.Background(), m, []byte("name: door\n"))
	require.NoError(t, err)

	s := &stick{data: bytes.Repeat([]byte{0xee}, stickSize)}
	plan, err := flash.NewPlan(context.Background(), m, site, stickSize, rand.New(rand.NewSource(1)))
	require.NoError(t, err)
	require.NoError(t, flashTo(plan, s))
	assert.Equal(t, map[string]string{"site.yaml": "name: door\n", "README.txt": "readme"}, siteOf(t, s))

	plain := &stick{data: bytes.Repeat([]byte{0xee}, stickSize)}
	plan, err = flash.NewPlan(context.Background(), m, nil, stickSize, rand.New(rand.NewSource(1)))
	require.NoError(t, err)
	require.NoError(t, flashTo(plan, plain))
	assert.Equal(t, map[string]string{"site.yaml": "of the image", "README.txt": "readme"}, siteOf(t, plain))
	for _, name := range []string{"BIOS", "ESP", "ROOT-A"} {
		assert.True(t, bytes.Equal(content(t, plain, name), content(t, s, name)), "%s differs", name)
	}
}

// TestASiteOfItsOwnReplacesTheOwners on a stick whose DATA stays.
func TestASiteOfItsOwnReplacesTheOwners(t *testing.T) {
	s := usedStick(t, stickImage(t, 1, 3))
	before := bytes.Clone(content(t, s, "DATA"))

	m := stickImage(t, 2, 2)
	site, err := flash.MakeSite(context.Background(), m, []byte("name: door\n"))
	require.NoError(t, err)
	old, err := flash.ReadStick(s, stickSize)
	require.NoError(t, err)
	plan, err := flash.NewKeepPlan(context.Background(), m, site, stickSize, old)
	require.NoError(t, err)
	assert.Equal(t, []string{"DATA"}, plan.Kept)
	require.NoError(t, flashTo(plan, s))
	assert.Equal(t, map[string]string{"site.yaml": "name: door\n", "README.txt": "readme"}, siteOf(t, s))
	assert.True(t, bytes.Equal(before, content(t, s, "DATA")), "DATA was written to")
}

// TestASiteNeedsAPlace: an image without SITE is no image of a stick.
func TestASiteNeedsAPlace(t *testing.T) {
	_, err := flash.MakeSite(context.Background(), image(t), nil)
	assert.ErrorContains(t, err, "has none of that name")
}
