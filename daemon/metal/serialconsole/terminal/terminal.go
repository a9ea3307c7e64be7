// Package terminal shows what a serial console prints as text: a screen of characters and the lines that left it at its
// top. It knows the sequences of ECMA-48 and of the VT100 that firmware, boot loaders, kernels and shells move about
// with. Colours, and whatever else it does not know, are left out; nothing is ever answered.
package terminal

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Columns and Rows are the size that firmware and systems take for granted on a serial line.
const (
	Columns = 80
	Rows    = 25
)

// maxPast is how many lines above the screen are kept.
const maxPast = 800

// Bounds of one sequence: what is longer is none.
const (
	maxParameters = 64 // bytes
	maxParameter  = 9999
)

// Screen is a terminal without a keyboard. Use New. It is not safe for use from several goroutines.
type Screen struct {
	cells       [Rows][Columns]rune // 0: blank
	row, column int                 // of the cursor; column is Columns after the last one of a row was written
	saved       [2]int
	top, bottom int // rows that scroll, both included

	past      []string // lines that left the screen, the oldest first
	forgotten int      // lines before past

	state      func(*Screen, rune)
	parameters []byte
	partial    []byte // of a character of UTF-8
	isGraphic  bool   // letters stand for lines (VT100 special graphics)
}

// New returns an empty screen.
func New() *Screen {
	s := &Screen{}
	s.reset()
	return s
}

func (s *Screen) reset() {
	*s = Screen{bottom: Rows - 1, past: s.past, forgotten: s.forgotten, state: (*Screen).text}
}

// Write takes what was printed. It never fails.
func (s *Screen) Write(p []byte) (int, error) {
	rest := append(s.partial, p...)
	s.partial = nil
	for len(rest) > 0 {
		if !utf8.FullRune(rest) {
			s.partial = slices.Clone(rest)
			break
		}
		r, size := utf8.DecodeRune(rest)
		rest = rest[size:]
		s.state(s, r)
	}
	return len(p), nil
}

// Lines are the rows of the screen, without the blanks at their ends.
func (s *Screen) Lines() []string {
	lines := make([]string, Rows)
	for i := range lines {
		lines[i] = rowText(s.cells[i][:])
	}
	return lines
}

// Cursor is where the next character is written: row and column, from 0.
func (s *Screen) Cursor() (row, column int) { return s.row, min(s.column, Columns-1) }

// Past are the lines that left the screen from the one numbered since on, as far as they are kept, and the number of the
// next one.
func (s *Screen) Past(since int) (lines []string, next int) {
	next = s.forgotten + len(s.past)
	return slices.Clone(s.past[min(max(since-s.forgotten, 0), len(s.past)):]), next
}

func rowText(cells []rune) string {
	var b strings.Builder
	for _, r := range cells {
		b.WriteRune(max(r, ' '))
	}
	return strings.TrimRight(b.String(), " ")
}

// text takes a character outside sequences.
func (s *Screen) text(r rune) {
	switch r {
	case '\r':
		s.column = 0
	case '\n', '\v', '\f':
		s.moveDown()
	case '\b':
		s.column = max(min(s.column, Columns-1)-1, 0)
	case '\t':
		s.column = min(s.column/8*8+8, Columns-1)
	case 0x0e, 0x0f: // shift out and in: to the graphic set and back
		s.isGraphic = r == 0x0e
	case 0x1b:
		s.state = (*Screen).escape
	default:
		if unicode.IsPrint(r) && r != utf8.RuneError {
			s.put(r)
		}
	}
}

// put writes a character, on the next row if this one is full. Wide ones take one cell: firmware and kernels print none.
func (s *Screen) put(r rune) {
	if unicode.Is(unicode.Mn, r) {
		return
	}
	if s.column >= Columns {
		s.column = 0
		s.moveDown()
	}
	if line, ok := graphics[r]; ok && s.isGraphic {
		r = line
	}
	s.cells[s.row][s.column] = r
	s.column++
}

// graphics are what letters stand for in the special graphics of the VT100: frames of set-up screens.
var graphics = map[rune]rune{
	'j': '┘', 'k': '┐', 'l': '┌', 'm': '└', 'n': '┼', 'q': '─', 't': '├', 'u': '┤', 'v': '┴', 'w': '┬', 'x': '│', 'a': '▒',
}

// moveDown moves the cursor down, and the rows up if it is at the end of those that scroll.
func (s *Screen) moveDown() {
	switch {
	case s.row == s.bottom:
		s.scrollUp(1)
	case s.row < Rows-1:
		s.row++
	}
}

// scrollUp moves the rows that scroll up. What leaves the screen is kept.
func (s *Screen) scrollUp(n int) {
	for range min(n, s.bottom-s.top+1) {
		if s.top == 0 {
			s.remember(s.cells[0][:])
		}
		copy(s.cells[s.top:s.bottom], s.cells[s.top+1:s.bottom+1])
		s.cells[s.bottom] = [Columns]rune{}
	}
}

func (s *Screen) scrollDown(n int) {
	for range min(n, s.bottom-s.top+1) {
		copy(s.cells[s.top+1:s.bottom+1], s.cells[s.top:s.bottom])
		s.cells[s.top] = [Columns]rune{}
	}
}

func (s *Screen) remember(cells []rune) {
	s.past = append(s.past, rowText(cells))
	if more := len(s.past) - maxPast; more > 0 {
		s.past = slices.Delete(s.past, 0, more)
		s.forgotten += more
	}
}
