package page

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatComesAfterStandsToTheRight(t *testing.T) {
	for _, c := range []struct {
		name    string
		all     []vertex
		columns map[string]int
		cycles  int
	}{
		{"nothing", nil, nil, 0},
		{"no order", []vertex{{Name: "a"}, {Name: "b"}}, nil, 0},
		{"a chain", []vertex{{Name: "c", After: []string{"b"}}, {Name: "b", After: []string{"a"}}, {Name: "a"}, {Name: "alone"}},
			map[string]int{"a": 0, "b": 1, "c": 2}, 0},
		{"the longest way counts", []vertex{{Name: "d", After: []string{"a", "c"}}, {Name: "c", After: []string{"a"}}, {Name: "a"}},
			map[string]int{"a": 0, "c": 1, "d": 2}, 0},
		{"one that is not there", []vertex{{Name: "b", After: []string{"gone"}}}, map[string]int{"gone": 0, "b": 1}, 0},
		{"a circle", []vertex{{Name: "a", After: []string{"b"}}, {Name: "b", After: []string{"a"}}, {Name: "c", After: []string{"b"}}},
			map[string]int{"b": 0, "a": 1, "c": 1}, 1},
		{"after itself", []vertex{{Name: "a", After: []string{"a"}}}, map[string]int{"a": 0}, 1},
	} {
		g := newGraph(c.all)
		if c.columns == nil {
			assert.Nil(t, g, c.name)
			continue
		}
		require.NotNil(t, g, c.name)
		columns, taken := map[string]int{}, map[[2]int]string{}
		for _, b := range g.Boxes {
			columns[b.Name] = b.Column
			assert.Empty(t, taken[[2]int{b.X, b.Y}], "%s: two boxes at one place", c.name)
			taken[[2]int{b.X, b.Y}] = b.Name
			assert.LessOrEqual(t, b.X+boxWidth, g.Width, c.name)
			assert.LessOrEqual(t, b.Y+boxHeight, g.Height, c.name)
			assert.Equal(t, b.Name == "gone", b.IsMissing, b.Name)
		}
		assert.Equal(t, c.columns, columns, c.name)

		cycles, arrows := 0, 0
		for _, v := range c.all {
			arrows += len(v.After)
		}
		for _, a := range g.Arrows {
			if a.IsCycle {
				cycles++
			}
		}
		assert.Equal(t, []int{arrows, c.cycles}, []int{len(g.Arrows), cycles}, c.name)
	}
}

func TestADrawingIsBounded(t *testing.T) {
	var all []vertex
	for i := range maxBoxes {
		all = append(all, vertex{Name: fmt.Sprintf("component-with-a-long-name-%d", i), After: []string{"component-with-a-long-name-0"}})
	}
	all[0].After = nil
	g := newGraph(all)
	require.Len(t, g.Boxes, maxBoxes)
	assert.Equal(t, "component-with-a-long-n…", g.Boxes[0].Label)
	assert.Nil(t, newGraph(append(all, vertex{Name: "z", After: []string{"a"}})), "too many to be read")
}
