package page

import (
	"cmp"
	"fmt"
	"slices"
)

// Sizes of a drawing, in pixels of CSS.
const (
	boxWidth  = 200
	boxHeight = 44
	columnGap = 56
	rowGap    = 16
	margin    = 4
	maxBoxes  = 60 // more are not drawn
	maxLabel  = 24 // characters that fit a box
)

// vertex is what is drawn as a box: something with a name, after others.
type vertex struct {
	Name  string
	Text  string // the second line
	Level level
	After []string // names
}

// graph is a drawing of what comes after what, from left to right.
type graph struct {
	Width, Height int
	Boxes         []graphBox
	Arrows        []graphArrow
}

// graphBox is one vertex, with its upper left corner.
type graphBox struct {
	vertex
	Label     string // its name, as much as fits
	Column    int
	X, Y      int
	Width     int
	Height    int
	IsMissing bool // something comes after it, and it is not there
}

// graphArrow leads from what comes before to what comes after.
type graphArrow struct {
	Path    string // as SVG writes curves
	Head    string // the points of its head
	IsCycle bool   // it leads back: neither can come first
}

// newGraph places vertices so that each is to the right of all that it comes after. What comes after nothing, and before
// nothing, is left out. It is nil if nothing is left, or too much.
func newGraph(all []vertex) *graph {
	boxes := relatedBoxes(all)
	if len(boxes) == 0 || len(boxes) > maxBoxes {
		return nil
	}

	back := placeColumns(boxes)
	names := make([]string, 0, len(boxes))
	for name := range boxes {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(boxes[a].Column, boxes[b].Column), cmp.Compare(a, b))
	})

	g, rows := &graph{}, map[int]int{}
	for _, name := range names {
		b := boxes[name]
		b.X = margin + b.Column*(boxWidth+columnGap)
		b.Y = margin + rows[b.Column]*(boxHeight+rowGap)
		rows[b.Column]++
		g.Width = max(g.Width, b.X+boxWidth+margin)
		g.Height = max(g.Height, b.Y+boxHeight+margin)
		g.Boxes = append(g.Boxes, *b)
	}

	for _, name := range names {
		for _, before := range boxes[name].After {
			g.Arrows = append(g.Arrows, newArrow(boxes[before], boxes[name], back[edge{before, name}]))
		}
	}
	return g
}

// relatedBoxes are the vertices that come before or after another one, and those that are named and not there.
func relatedBoxes(all []vertex) map[string]*graphBox {
	known, boxes := map[string]vertex{}, map[string]*graphBox{}
	for _, v := range all {
		known[v.Name] = v
	}
	add := func(name string) {
		if boxes[name] != nil {
			return
		}
		v, isThere := known[name]
		if !isThere {
			v = vertex{Name: name, Text: "not there", Level: bad}
		}
		boxes[name] = &graphBox{
			vertex:    v,
			Label:     shorten(name, maxLabel),
			Width:     boxWidth,
			Height:    boxHeight,
			IsMissing: !isThere,
		}
	}
	for _, v := range all {
		if len(v.After) == 0 {
			continue
		}
		add(v.Name)
		for _, before := range v.After {
			add(before)
		}
	}
	return boxes
}

// edge is that one vertex comes before another one.
type edge struct{ before, after string }

// placeColumns gives each box the column after the last of those that it comes after, and returns the edges that lead
// back because nothing of a circle can come first.
func placeColumns(boxes map[string]*graphBox) (back map[edge]bool) {
	back = map[edge]bool{}
	const (
		begun = 1
		done  = 2
	)
	states := map[string]int{}
	var place func(name string)
	place = func(name string) {
		states[name] = begun
		b := boxes[name]
		for _, before := range b.After {
			if states[before] == begun {
				back[edge{before, name}] = true
				continue
			}
			if states[before] == 0 {
				place(before)
			}
			b.Column = max(b.Column, boxes[before].Column+1)
		}
		states[name] = done
	}

	names := make([]string, 0, len(boxes))
	for name := range boxes {
		names = append(names, name)
	}
	slices.Sort(names) // so that a circle is cut at the same place each time
	for _, name := range names {
		if states[name] == 0 {
			place(name)
		}
	}
	return back
}

// newArrow leads from the right side of a box to the left side of another one.
func newArrow(from, to *graphBox, isCycle bool) graphArrow {
	const head = 8
	x1, y1 := from.X+boxWidth, from.Y+boxHeight/2
	x2, y2 := to.X, to.Y+boxHeight/2
	bend := columnGap / 2
	return graphArrow{
		Path:    fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2-head, y2),
		Head:    fmt.Sprintf("%d,%d %d,%d %d,%d", x2, y2, x2-head, y2-4, x2-head, y2+4),
		IsCycle: isCycle,
	}
}

// shorten keeps the first characters of a text.
func shorten(text string, characters int) string {
	runes := []rune(text)
	if len(runes) <= characters {
		return text
	}
	return string(runes[:characters-1]) + "…"
}
