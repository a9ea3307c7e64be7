package apply

import "strings"

// NotReady are the checks that an API server's /readyz reports as failed: lines that begin with [-].
// The words of its answer beside them are for its own developers.
func NotReady(report string) (names []string) {
	for line := range strings.Lines(report) {
		if rest, failed := strings.CutPrefix(line, "[-]"); failed {
			name, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			names = append(names, strings.TrimPrefix(name, "poststarthook/"))
		}
	}
	return names
}
