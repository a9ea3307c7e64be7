package commandline_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/commandline"
)

func TestRenderBar(t *testing.T) {
	for _, c := range []struct {
		done, total int64
		want        string
	}{
		{0, 100, "[----------]"},
		{9, 100, "[----------]"},
		{10, 100, "[#---------]"},
		{99, 100, "[#########-]"},
		{100, 100, "[##########]"},
		{120, 100, "[##########]"},
		{-1, 100, "[----------]"},
		{0, 0, "[----------]"},
		{math.MaxInt64 / 2, math.MaxInt64, "[#####-----]"},
	} {
		assert.Equal(t, c.want, commandline.RenderBar(10, c.done, c.total), "%d of %d", c.done, c.total)
	}
}
