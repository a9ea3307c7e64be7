package bench_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/bench"
)

func TestRows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bench")
	rows := []bench.Row{
		bench.Row{Name: "image/rebuild", Unit: "s", Ours: 8, Note: "median of 5"}.Less("bar", 10, 1),
		bench.Row{Name: "image/size", Unit: "MiB", Ours: 1000, Note: "zstd"}.Less("bar", 500, 1),
		{Name: "image/alone", Unit: "s", Ours: 1.23456, Note: "one run"},
	}
	var said strings.Builder
	require.NoError(t, bench.Write(&said, dir, "image", rows))
	assert.Equal(t, `image/rebuild ours=8 s peer=bar:10 s ratio=1.25 bar=>=1 ok
  note: median of 5
image/size ours=1000 MiB peer=bar:500 MiB ratio=0.50 bar=>=1 short
  note: zstd
image/alone ours=1.235 s
  note: one run
`, said.String())
	text, err := os.ReadFile(filepath.Join(dir, "image.json"))
	require.NoError(t, err)
	var kept []bench.Row
	require.NoError(t, json.Unmarshal(text, &kept))
	assert.Equal(t, rows, kept)
}

func TestMedian(t *testing.T) {
	assert.Equal(t, 2.0, bench.Median([]float64{9, 1, 2}))
	assert.Equal(t, 3.0, bench.Median([]float64{9, 1, 2, 4}))
}
