package ctrlmanager

import "firstlight.dev/firstlight/assets/excerpt"

// maxNote is in bytes; the API takes 1024 (validation of events.k8s.io/v1).
const maxNote = 1000

// TruncateNote fits the note of an Event.
func TruncateNote(text string) string { return excerpt.Start(text, maxNote) }
