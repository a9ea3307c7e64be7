package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/image"
)

// clock makes the time of a progress stand still until it is moved.
func clock(p *progress) (move func(time.Duration)) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p.now = func() time.Time { return now }
	return func(d time.Duration) { now = now.Add(d) }
}

func TestProgressIsPlainElsewhereThanOnATerminal(t *testing.T) {
	var said strings.Builder
	p := newProgress(&said)
	move := clock(p)
	p.Log("first run")
	p.Begin("program box", []string{"package a changed", "package b is new"})
	for second := range 40 {
		p.Advance("program box", image.Position{Done: second, All: 40, Next: []string{"linking", "next"}})
		move(time.Second)
	}
	p.End("program box", 40*time.Second)
	p.Begin("program next", nil)
	move(14 * time.Second) // seconds are not worth a line
	p.Advance("program next", image.Position{Doing: "linking"})
	p.End("program next", 14*time.Second)
	assert.Equal(t, `first run
build program box: package a changed, package b is new
build program box: 15 of 40 packages, 0:15 min; next: linking, next
build program box: 30 of 40 packages, 0:30 min; next: linking, next
built program box in 40.0 s
build program next: 
built program next in 14.0 s
`, said.String())
}

func TestProgressIsDrawnOnATerminal(t *testing.T) {
	var said strings.Builder
	p := newProgress(&said)
	p.terminal, p.columns = true, func() int { return 60 }
	move := clock(p)
	p.Log("first run")
	p.Begin("packages box", []string{"package a changed"})
	p.Advance("packages box", image.Position{Done: 1, All: 2})
	p.Advance("packages box", image.Position{Done: 1, All: 3}) // too early
	p.Advance("packages box", image.Position{Done: 2, All: 2}) // the last one is always drawn
	move(150 * time.Second)
	p.Advance("packages box", image.Position{Doing: "linking", Next: []string{"next"}})
	p.Advance("packages box", image.Position{Done: 2, All: 2, Next: []string{"linking", "next"}}) // no room for a bar, nor for all of it
	p.End("packages box", time.Second)
	assert.Equal(t, []string{
		"", "first run\n",
		"  …  packages box (package a changed)",
		"  [" + strings.Repeat("#", 7) + strings.Repeat("-", 8) + "] packages box: 1 of 2 packages, 0:00 min",
		"  [" + strings.Repeat("#", 15) + "] packages box: 2 of 2 packages, 0:00 min",
		"  …  packages box: linking, 2:30 min; next: next",
		"  …  packages box: 2 of 2 packages, 2:30 min; next: linkin…",
		"  ✓  packages box (1.0 s)\n",
	}, strings.Split(said.String(), "\r\x1b[K"))
}

func TestHowFar(t *testing.T) {
	cases := []struct {
		at   image.Position
		took time.Duration
		want string
	}{
		{image.Position{}, 0, "0:00 min"},
		{image.Position{Doing: "34 Go modules fetched", Next: []string{"compiling", "etcd"}}, 15 * time.Second, "34 Go modules fetched, 0:15 min; next: compiling, etcd"},
		{image.Position{Done: 412, All: 1874, Next: []string{"linking", "etcd"}}, 130 * time.Second, "412 of 1874 packages, 2:10 min; next: linking, etcd"},
		{image.Position{Doing: "linking", Next: []string{"etcd"}}, 20*time.Minute + 5*time.Second, "linking, 20:05 min; next: etcd"},
		{image.Position{Doing: "fetching", Done: 3, All: 4}, 75 * time.Minute, "fetching, 3 of 4 packages, 75:00 min"},
	}
	for _, c := range cases {
		assert.Equal(t, c.want, describePosition(c.at, c.took))
	}
}
