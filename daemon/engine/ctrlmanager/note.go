package ctrlmanager

import "strings"

// maxNote is in bytes; the API takes 1024 (validation of events.k8s.io/v1).
const maxNote = 1000

// TruncateNote fits the note of an Event.
func TruncateNote(text string) string {
	if len(text) <= maxNote {
		return text
	}
	return strings.ToValidUTF8(text[:maxNote], "") + " …" // it may have been cut inside of a rune
}
