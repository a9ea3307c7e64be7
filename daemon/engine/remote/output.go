package remote

import (
	"bytes"
	"strings"

	"firstlight.dev/firstlight/assets/excerpt"
)

// Quote makes a line for the shell of a list of words.
func Quote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if w == "" || strings.ContainsFunc(w, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(
				"-_./:=@%+,", r,
			))
		}) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// shortCommand is a command for people: its first words, a script by its first line.
func shortCommand(words []string) string {
	s, more, cut := strings.Cut(strings.Join(words, " "), "\n")
	if cut && strings.TrimSpace(s) == "" {
		s, _, _ = strings.Cut(strings.TrimSpace(more), "\n")
	}

	if len(s) > 120 {
		s, cut = s[:120], true
	}

	if cut {
		s += " …"
	}

	return s
}

// Tail is the end of what a program printed, on one line.
func Tail(s string) string { return excerpt.End(excerpt.Line(s), 600) }

// maxOutput bounds what is kept of either stream: the end of it.
const maxOutput = 256 << 10

// tail keeps the last maxOutput bytes.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > maxOutput {
		p = p[len(p)-maxOutput:]
	}

	if over := t.Len() + len(p) - maxOutput; over > 0 {
		t.Next(over)
	}

	t.Buffer.Write(p)
	return n, nil
}
