package terminal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// shown is what is on a screen after something was printed, a line each, without the blank ones at the end.
func shown(text string) string {
	s := New()
	_, _ = s.Write([]byte(text))
	return strings.TrimRight(strings.Join(s.Lines(), "\n"), "\n")
}

func TestTheScreenShowsWhatATerminalWould(t *testing.T) {
	for name, c := range map[string]struct{ printed, want string }{
		"lines":                   {"one\r\ntwo\r\n", "one\ntwo"},
		"a line feed alone":       {"one\ntwo", "one\n   two"},
		"a line written again":    {"loading 10%\rloading 20%", "loading 20%"},
		"backspace":               {"passwort\b\bd", "passwodt"},
		"tab":                     {"a\tb", "a       b"},
		"colours are left out":    {"\x1b[1;32m[  OK  ]\x1b[0m Started", "[  OK  ] Started"},
		"a title is left out":     {"\x1b]0;root@node-1\x07# ", "#"},
		"a title with its end":    {"\x1b]2;x\x1b\\#", "#"},
		"the cursor is moved":     {"\x1b[2;5Hx\x1b[1;1Hy", "y\n    x"},
		"relative moves":          {"abc\x1b[2D\x1b[Bx\x1b[Ay", "aby\n x"},
		"the screen is erased":    {"old\x1b[2J\x1b[Hnew", "new"},
		"the rest is erased":      {"one\r\ntwo\x1b[1;2H\x1b[J", "o"},
		"the row is erased":       {"prompt> ls\x1b[8G\x1b[K", "prompt>"},
		"cells are deleted":       {"abcdef\x1b[2G\x1b[2P", "adef"},
		"cells are inserted":      {"abc\x1b[2G\x1b[1@X", "aXbc"},
		"rows are inserted":       {"a\r\nb\x1b[1;1H\x1b[L", "\na\nb"},
		"rows are deleted":        {"a\r\nb\r\nc\x1b[1;1H\x1b[M", "b\nc"},
		"frames":                  {"\x1b(0lqk\x1b(B ok", "┌─┐ ok"},
		"UTF-8":                   {"Gerät ✓", "Gerät ✓"},
		"what is no UTF-8":        {"a\xffb", "ab"},
		"a private mode":          {"\x1b[?25l\x1b[?2004hx", "x"},
		"a sequence that is none": {"\x1b[12\x18ab", "ab"},
		"a question":              {"\x1b[6n\x1b[cx", "x"},
		"a reset":                 {"\x1b[5;5Hx\x1bcy", "y"},
		"a bell":                  {"a\ab", "ab"},
	} {
		assert.Equal(t, c.want, shown(c.printed), name)
	}
	assert.Equal(t, strings.Repeat("x", Columns)+"\ny", shown(strings.Repeat("x", Columns)+"y"), "a long line is wrapped")
	assert.Equal(t, strings.Repeat("x", Columns)+"\ny", shown(strings.Repeat("x", Columns)+"\r\ny"), "a full line is one")
}

func TestWhatArrivesInPiecesIsTheSame(t *testing.T) {
	const text = "\x1b[2;5Hä\x1b[1;31m✓\x1b[0m\r\n\x1b]0;title\x07ende"
	whole, pieces := New(), New()
	_, _ = whole.Write([]byte(text))
	for i := range len(text) {
		_, _ = pieces.Write([]byte{text[i]})
	}
	assert.Equal(t, whole.Lines(), pieces.Lines())
}

func TestLinesThatLeaveTheScreenAreKept(t *testing.T) {
	s := New()
	for i := range Rows + 3 {
		_, _ = fmt.Fprintf(s, "line %d\r\n", i)
	}
	lines, next := s.Past(0)
	assert.Equal(t, []string{"line 0", "line 1", "line 2", "line 3"}, lines)
	assert.Equal(t, "line 4", s.Lines()[0])
	_, _ = s.Write([]byte("more\r\n"))
	lines, next = s.Past(next)
	assert.Equal(t, []string{"line 4"}, lines)
	lines, _ = s.Past(next)
	assert.Empty(t, lines)

	_, _ = s.Write([]byte("\x1b[2J\x1b[Hlogin:"))
	lines, _ = s.Past(next)
	assert.Equal(t, "more", lines[len(lines)-1], "a screen that is erased is kept, too")
	for i := range 2 * maxPast {
		_, _ = fmt.Fprintf(s, "again %d\r\n", i)
	}
	lines, next = s.Past(0)
	assert.Len(t, lines, maxPast)
	assert.Greater(t, next, maxPast)

	s = New()
	_, _ = s.Write([]byte("head\x1b[2;4r\x1b[4;1Ha\r\nb\r\nc\r\nd"))
	assert.Equal(t, "head\nb\nc\nd", strings.TrimRight(strings.Join(s.Lines(), "\n"), "\n"), "rows that scroll by themselves")
	lines, _ = s.Past(0)
	assert.Empty(t, lines)
}

func FuzzScreen(f *testing.F) {
	f.Add([]byte("\x1b[2;4r\x1b[999;999H\x1b[99L\x1b[99M\x1b[99@\x1b[99P\x1b[99X\x1bM\x1b[99S\x1b[99T"))
	f.Add([]byte("\x1b[3J\x1b[1J\x1b[1K\x1b[2K\x1b7\x1b8\x1b[s\x1b[u\x1b#8\x1b(0abc\x0e\x0f\xff\xc3"))
	f.Add([]byte(strings.Repeat("0123456789", 20) + "\x1b[D\x1b[C\x1b[99999999999999999999;5H\x1b[80Gxy\x1b[K"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := New()
		_, _ = s.Write(text)
		row, column := s.Cursor()
		assert.True(t, row >= 0 && row < Rows && column >= 0 && column < Columns)
		past, _ := s.Past(0)
		assert.LessOrEqual(t, len(past), maxPast)
		for _, line := range append(past, s.Lines()...) {
			for _, r := range line {
				assert.False(t, r < ' ' || r == 0x7f, "control characters are left out")
			}
		}
	})
}
