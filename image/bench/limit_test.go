package bench_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/bench"
)

// limit is what the compressed image may have, in MiB.
const limit = 600

func TestImageIsWithinItsLimit(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "native") {
		t.Skip("weighs the built image; set FIRSTLIGHT_TEST=native")
	}
	top, err := bench.FindTop()
	require.NoError(t, err)
	size, err := compressedSize(imageOf(top))
	require.NoError(t, err)
	if size <= limit {
		return
	}

	rows, err := measureSizes(t.Context(), top, filepath.Join(t.TempDir(), "work"))
	require.NoError(t, err)
	t.Error(describeExcess(size, rows))
}

// describeExcess says how far the image is above its limit, and what its parts weigh, the heaviest first.
func describeExcess(size float64, rows []bench.Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "the compressed image has %.1f MiB, %.1f more than the %d it may have; make it smaller, "+
		"or raise the limit and say why. In MiB:", size, size-limit, limit)
	heaviest := func(x, y bench.Row) int { return cmp.Compare(y.Ours, x.Ours) }
	for _, r := range slices.SortedFunc(slices.Values(rows), heaviest) {
		fmt.Fprintf(&b, "\n%6.1f  %s", r.Ours, r.Name)
	}
	return b.String()
}

func TestExcessIsDescribedByWeight(t *testing.T) {
	rows := []bench.Row{{Name: "image/size", Ours: 604.06}, {Name: "drivers", Ours: 49}, {Name: "layer of ironic", Ours: 87}}
	assert.Equal(t, `the compressed image has 604.1 MiB, 4.1 more than the 600 it may have; make it smaller, `+
		`or raise the limit and say why. In MiB:
 604.1  image/size
  87.0  layer of ironic
  49.0  drivers`, describeExcess(604.06, rows))
}
