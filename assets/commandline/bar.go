package commandline

import "strings"

// RenderBar draws how much of total is done, in so many columns between its brackets; in ASCII, for serial lines.
func RenderBar(columns int, done, total int64) string {
	done, total = max(done, 0), max(total, 1)
	full := columns
	if done < total {
		full = int(float64(columns) * float64(done) / float64(total))
	}

	return "[" + strings.Repeat("#", full) + strings.Repeat("-", columns-full) + "]"
}
