// Package excerpt fits what other programs and people wrote into sentences, statuses and logs.
package excerpt

import "strings"

// ellipsis is where something is left out.
const ellipsis = "…"

// Line puts a text on one line: each run of white space becomes a blank.
func Line(text string) string { return strings.Join(strings.Fields(text), " ") }

// Start keeps the first bytes of a text, whole runes of them.
func Start(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + ellipsis
}

// End keeps the last bytes of a text, whole runes of them.
func End(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return ellipsis + strings.ToValidUTF8(text[len(text)-bytes:], "")
}
