package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bench")
	rows := []Row{
		Row{Name: "image/rebuild", Unit: "s", Ours: 8, Note: "median of 5"}.Less("bar", 10, 1),
		Row{Name: "image/size", Unit: "MiB", Ours: 1000, Note: "zstd"}.Less("bar", 500, 1),
		{Name: "image/alone", Unit: "s", Ours: 1.23456, Note: "one run"},
	}
	var shown strings.Builder
	require.NoError(t, writeRows(&shown, dir, "image", rows))
	assert.Equal(t, `image/rebuild ours=8 s peer=bar:10 s ratio=1.25 bar=>=1 ok
  note: median of 5
image/size ours=1000 MiB peer=bar:500 MiB ratio=0.50 bar=>=1 short
  note: zstd
image/alone ours=1.235 s
  note: one run
`, shown.String())
	text, err := os.ReadFile(filepath.Join(dir, "image.json"))
	require.NoError(t, err)
	var saved []Row
	require.NoError(t, json.Unmarshal(text, &saved))
	assert.Equal(t, rows, saved)
}

func TestMedian(t *testing.T) {
	assert.Equal(t, 2.0, Median([]float64{9, 1, 2}))
	assert.Equal(t, 3.0, Median([]float64{9, 1, 2, 4}))
}

func TestSeries(t *testing.T) {
	var s Series
	for _, v := range []float64{3, 1, 2} {
		s.Add("later", v)
		s.Add("b", 10*v)
	}
	s.Add("a", 5)
	assert.Equal(t, []string{"later", "b", "a"}, s.Names(), "in the order of their first")
	assert.Equal(t, 20.0, s.Median("b"))
	assert.Zero(t, s.Median("never measured"))
}

func TestMemoryOfThisProcess(t *testing.T) {
	now, err := Memory(os.Getpid(), Resident)
	require.NoError(t, err)
	peak, err := Memory(os.Getpid(), PeakResident)
	require.NoError(t, err)
	assert.Positive(t, now)
	assert.Positive(t, peak)
	_, err = Memory(os.Getpid(), "VmNothing")
	assert.ErrorContains(t, err, "has no VmNothing")
}
