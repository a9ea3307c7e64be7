package console

import (
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets/status"
)

// SourceText says in a few lines how a source stands that is followed, and why it is not applied.
func SourceText(s *status.Source) string {
	var b strings.Builder
	fmt.Fprintf(&b, "source        %s: %s", s.From, s.State)
	if s.Revision != "" {
		fmt.Fprintf(&b, "\n              applied: %s, %s", s.Revision, s.Applied.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	if s.Offered != "" && s.Offered != s.Revision {
		fmt.Fprintf(&b, "\n              not applied: %s", s.Offered)
	}
	if !s.Behind.IsZero() {
		fmt.Fprintf(&b, "\n              behind since %s", s.Behind.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	for _, text := range []string{s.Refused, s.Error} {
		if text != "" {
			fmt.Fprintf(&b, "\n              %s", strings.ReplaceAll(text, "\n", "\n              "))
		}
	}
	return b.String()
}
