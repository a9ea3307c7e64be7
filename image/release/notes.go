package release

import (
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets"
)

const unreleased = "Unreleased"

// notesOf takes a version's section out of a changelog: that of the version for what is released, else Unreleased.
func notesOf(changelog string, r assets.Revision) (string, error) {
	section := unreleased
	if r.Version() == assets.Version {
		section = assets.Version
	}

	var notes strings.Builder
	isInside := false
	for line := range strings.Lines(changelog) {
		if heading, isHeading := strings.CutPrefix(line, "## "); isHeading {
			isInside = strings.HasPrefix(heading, "["+section+"]")
		} else if isInside {
			notes.WriteString(line)
		}
	}

	text := strings.TrimSpace(notes.String())
	if text == "" {
		return "", fmt.Errorf("there is nothing under ## [%s]", section)
	}

	return title(r) + text + "\n", nil
}

func title(r assets.Revision) string {
	return fmt.Sprintf(
		"# Firstlight %s\n\nCommit %s of %s.\n\n", r.Version(), r.Commit, r.Time.UTC().Format("2006-01-02"),
	)
}
