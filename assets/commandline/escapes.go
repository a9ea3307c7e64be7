package commandline

import "regexp"

// escapes matches what terminals are told besides text (ECMA-48): control sequences such as colours and cursor moves,
// operating system commands such as titles, charsets and keypad modes. A sequence that is truncated at the end of the text
// counts as well. An escape before any other letter is none that a guest sends, and that letter may be text.
var escapes = regexp.MustCompile(
	`\x1b(?:\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(?:\x07|\x1b\\|$)|[ -/]+[0-~]?|[=>c78])`,
)

// StripEscapes returns a text without the escape sequences of terminals, each of them whole. Other control characters
// stay.
func StripEscapes(text string) string { return escapes.ReplaceAllString(text, "") }
