package excerpt_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/excerpt"
)

func TestLine(t *testing.T) {
	assert.Equal(t, "a b c", excerpt.Line(" a\tb\r\n\n c\n"))
	assert.Empty(t, excerpt.Line(" \n"))
}

func TestStartAndEnd(t *testing.T) {
	for _, c := range []struct {
		text       string
		bytes      int
		start, end string
	}{
		{"", 0, "", ""},
		{"four", 4, "four", "four"},
		{"fours", 4, "four…", "…ours"},
		{"aä", 3, "aä", "aä"},
		{"aäb", 2, "a…", "…b"}, // ä has two bytes
		{"five5", 0, "…", "…"},
	} {
		assert.Equal(t, c.start, excerpt.Start(c.text, c.bytes), "start of %q, %d", c.text, c.bytes)
		assert.Equal(t, c.end, excerpt.End(c.text, c.bytes), "end of %q, %d", c.text, c.bytes)
	}
}
