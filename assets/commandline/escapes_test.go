package commandline_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/commandline"
)

// TestEscapesAreStrippedWhole: half of one is letters that no one wrote.
func TestEscapesAreStrippedWhole(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		"plain [2J text":                       "plain [2J text",
		"\x1b[2JiPXE\t1.21.1":                  "iPXE\t1.21.1",
		"[  \x1b[0;32mOK\x1b[0m  ] up":         "[  OK  ] up",
		"\x1b[?25l\x1b[1;1H\x1b[!pcleared":     "cleared",
		"\x1b]0;a title\x07text\x1b]8;;\x1b\\": "text",
		"\x1b(B\x1b)0\x1b=\x1bc\x1b7text":      "text",
		"truncated\x1b[3":                      "truncated",
		"truncated\x1b]0;ti":                   "truncated",
		"user \x1badmin":                       "user \x1badmin",
	} {
		assert.Equal(t, want, commandline.StripEscapes(text), "%q", text)
	}
}
