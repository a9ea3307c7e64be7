package terminal

import (
	"strconv"
	"strings"
)

// escape takes what follows ESC.
func (s *Screen) escape(r rune) {
	s.state = (*Screen).text
	switch r {
	case '[':
		s.parameters = s.parameters[:0]
		s.state = (*Screen).control
	case ']', 'P', '_', '^', 'X':
		s.state = (*Screen).skipString
	case '(':
		s.state = func(s *Screen, r rune) { s.isGraphic, s.state = r == '0', (*Screen).text }
	case ')', '*', '+', '#', '%', ' ':
		s.state = func(s *Screen, _ rune) { s.state = (*Screen).text }
	case '7':
		s.saved = [2]int{s.row, s.column}
	case '8':
		s.row, s.column = s.saved[0], s.saved[1]
	case 'D':
		s.moveDown()
	case 'E':
		s.column = 0
		s.moveDown()
	case 'M':
		if s.row == s.top {
			s.scrollDown(1)
		} else {
			s.row = max(s.row-1, 0)
		}
	case 'c':
		s.clear(0, 0, Rows-1, Columns-1)
		s.reset()
	}
}

// skipString leaves out a title or the like, up to BEL or ESC \.
func (s *Screen) skipString(r rune) {
	switch r {
	case 0x07, 0x18, 0x9c:
		s.state = (*Screen).text
	case 0x1b:
		s.state = (*Screen).escape // of which \ does nothing
	}
}

// control takes a control sequence after ESC [ (ECMA-48, 5.4): parameters, intermediate bytes, a final one.
func (s *Screen) control(r rune) {
	switch {
	case r >= 0x20 && r <= 0x3f:
		if len(s.parameters) < maxParameters {
			s.parameters = append(s.parameters, byte(r))
		}
	case r >= 0x40 && r <= 0x7e:
		s.state = (*Screen).text
		if text := string(s.parameters); strings.Trim(text, "0123456789;") == "" && len(text) < maxParameters {
			s.run(r, parse(text))
		}
	case r == 0x1b:
		s.state = (*Screen).escape
	case r == 0x18, r == 0x1a: // CAN and SUB end it
		s.state = (*Screen).text
	case r < 0x20:
		s.text(r) // as terminals do
	default:
		s.state = (*Screen).text
	}
}

// parse are the numbers of a sequence; 0 stands for the usual one.
func parse(text string) (numbers []int) {
	for part := range strings.SplitSeq(text, ";") {
		n, _ := strconv.Atoi(part) // "" is 0
		numbers = append(numbers, min(max(n, 0), maxParameter))
	}
	return numbers
}

// run does what a control sequence says (ECMA-48, 8.3).
func (s *Screen) run(final rune, p []int) {
	first, second := p[0], 0
	if len(p) > 1 {
		second = p[1]
	}
	n := max(first, 1)
	s.column = min(s.column, Columns) // a full row stays full unless the cursor moves
	switch final {
	case 'A':
		s.moveTo(s.row-n, s.column)
	case 'B', 'e':
		s.moveTo(s.row+n, s.column)
	case 'C', 'a':
		s.moveTo(s.row, s.column+n)
	case 'D':
		s.moveTo(s.row, min(s.column, Columns-1)-n)
	case 'E':
		s.moveTo(s.row+n, 0)
	case 'F':
		s.moveTo(s.row-n, 0)
	case 'G', '`':
		s.moveTo(s.row, n-1)
	case 'd':
		s.moveTo(n-1, s.column)
	case 'H', 'f':
		s.moveTo(n-1, max(second, 1)-1)
	case 'J':
		s.eraseScreen(first)
	case 'K':
		s.eraseRow(first)
	case 'X':
		s.clear(s.row, s.column, s.row, s.column+n-1)
	case 'P':
		s.deleteCells(n)
	case '@':
		s.insertCells(n)
	case 'S':
		s.scrollUp(n)
	case 'T':
		s.scrollDown(n)
	case 'L', 'M':
		s.shiftRows(final == 'L', n)
	case 'r':
		s.setScrolling(first, second)
	case 's':
		s.saved = [2]int{s.row, s.column}
	case 'u':
		s.row, s.column = s.saved[0], s.saved[1]
	}
}

func (s *Screen) moveTo(row, column int) {
	s.row, s.column = min(max(row, 0), Rows-1), min(max(column, 0), Columns-1)
}

// clear blanks what is between two places of the screen, both included, in the order of reading.
func (s *Screen) clear(fromRow, fromColumn, toRow, toColumn int) {
	for row := fromRow; row <= toRow; row++ {
		begin, end := 0, Columns-1
		if row == fromRow {
			begin = min(fromColumn, Columns-1)
		}
		if row == toRow {
			end = min(toColumn, Columns-1)
		}
		for column := begin; column <= end; column++ {
			s.cells[row][column] = 0
		}
	}
}

// eraseScreen blanks what is after the cursor, before it, or all. What was on a screen that is erased whole stays among
// the lines above it, as the start of a system erases what firmware said.
func (s *Screen) eraseScreen(which int) {
	switch which {
	case 0:
		s.clear(s.row, s.column, Rows-1, Columns-1)
	case 1:
		s.clear(0, 0, s.row, s.column)
	case 2:
		s.rememberScreen()
		s.clear(0, 0, Rows-1, Columns-1)
	}
}

func (s *Screen) rememberScreen() {
	last := -1
	for row := range s.cells {
		if rowText(s.cells[row][:]) != "" {
			last = row
		}
	}
	for row := range last + 1 {
		s.remember(s.cells[row][:])
	}
}

func (s *Screen) eraseRow(which int) {
	switch which {
	case 0:
		s.clear(s.row, s.column, s.row, Columns-1)
	case 1:
		s.clear(s.row, 0, s.row, s.column)
	case 2:
		s.clear(s.row, 0, s.row, Columns-1)
	}
}

func (s *Screen) deleteCells(n int) {
	at := min(s.column, Columns-1)
	row := s.cells[s.row][at:]
	n = min(n, len(row))
	copy(row, row[n:])
	clear(row[len(row)-n:])
}

func (s *Screen) insertCells(n int) {
	at := min(s.column, Columns-1)
	row := s.cells[s.row][at:]
	n = min(n, len(row))
	copy(row[n:], row)
	clear(row[:n])
}

// shiftRows inserts blank rows at the cursor, or deletes rows there.
func (s *Screen) shiftRows(isInsert bool, n int) {
	if s.row < s.top || s.row > s.bottom {
		return
	}
	rows := s.cells[s.row : s.bottom+1]
	n = min(n, len(rows))
	if isInsert {
		copy(rows[n:], rows)
		clear(rows[:n])
		return
	}
	copy(rows, rows[n:])
	clear(rows[len(rows)-n:])
}

// setScrolling says which rows scroll, numbered from 1.
func (s *Screen) setScrolling(first, last int) {
	top, bottom := max(first, 1)-1, last-1
	if last == 0 || bottom >= Rows {
		bottom = Rows - 1
	}
	if top >= bottom {
		return
	}
	s.top, s.bottom = top, bottom
	s.moveTo(0, 0)
}
