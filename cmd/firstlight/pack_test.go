package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/bundle"
	"firstlight.dev/firstlight/assets/goldentest"
)

// TestThePageOfPackingShowsWhatWasPacked: digests are long, and equal inputs have equal ones.
func TestThePageOfPackingShowsWhatWasPacked(t *testing.T) {
	t.Chdir(t.TempDir())
	const archive = "shop-1.0.0.tar"
	require.NoError(t, os.WriteFile(archive, nil, 0o644))
	require.NoError(t, os.Truncate(archive, 64278528))
	var out strings.Builder
	require.NoError(t, printBundle(&out, bundle.Bundle{Name: "shop", Version: "1.0.0", Images: []bundle.Image{
		{Asked: "registry.example/shop/database:1", Digest: "sha256:" + strings.Repeat("5b1c", 16)},
		{Asked: "registry.example/shop/web:1", Digest: "sha256:" + strings.Repeat("09fe", 16)},
	}}, archive))
	t.Chdir(here)
	goldentest.CheckBlock(t, "../../docs/addons.md", "pack", out.String())
}

// here is the folder of this package.
var here, _ = os.Getwd() // a test that cannot find its page says so
