package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestProgressIsPlainElsewhereThanOnATerminal(t *testing.T) {
	var said strings.Builder
	p := newProgress(&said)
	p.Begin("packages box", []string{"package a changed", "package b is new"})
	p.Advance("packages box", 1, 2)
	p.End("packages box", 1500*time.Millisecond)
	assert.Equal(t, "build packages box: package a changed, package b is new\nbuilt packages box in 1.5 s\n", said.String())
}

func TestProgressIsDrawnOnATerminal(t *testing.T) {
	var said strings.Builder
	p := newProgress(&said)
	p.terminal = true
	p.Begin("packages box", nil)
	p.Advance("packages box", 1, 2)
	p.Advance("packages box", 2, 2) // the last one is always drawn
	p.End("packages box", time.Second)
	lines := strings.Split(said.String(), "\r\x1b[K")
	assert.Equal(t, "  ["+strings.Repeat("█", 15)+strings.Repeat("·", 15)+"] 1/2 packages box", lines[2])
	assert.Equal(t, "  ["+strings.Repeat("█", 30)+"] 2/2 packages box", lines[3])
	assert.Equal(t, "  ✓  packages box (1.0 s)\n", lines[4])
}
