package ctrlmanager

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func TestNotesAreWholeRunesThatFit(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"none", "", ""},
		{"as long as it may be", strings.Repeat("a", maxNote), strings.Repeat("a", maxNote)},
		{"one more", strings.Repeat("a", maxNote+1), strings.Repeat("a", maxNote) + "…"},
		{"cut between runes", strings.Repeat("ä", maxNote), strings.Repeat("ä", maxNote/2) + "…"},
		{"cut inside of a rune", "a" + strings.Repeat("ä", maxNote), "a" + strings.Repeat("ä", maxNote/2-1) + "…"},
	} {
		got := TruncateNote(c.text)
		assert.Equal(t, c.want, got, c.name)
		assert.True(t, utf8.ValidString(got), c.name)
		assert.LessOrEqual(t, len(got), 1024, c.name)
	}
}
