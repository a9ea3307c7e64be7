package yamldoc

import "strings"

// Suggest says what may be meant by an unknown key: the nearest known one, or all of them.
func Suggest(key string, known []string) string {
	best, least := "", 1<<30
	for _, k := range known {
		d := editDistance(strings.ToLower(key), strings.ToLower(k))
		if d < least {
			best, least = k, d
		}
	}

	if len(key) < 64 && least <= max(len(best)/3, 1) {
		return "did you mean " + best + "?"
	}

	for _, k := range known {
		if len(key) > 2 && (containsFold(k, key) || containsFold(key, k)) {
			return "did you mean " + k + "?"
		}
	}

	return "known here: " + strings.Join(known, ", ")
}

func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

// editDistance counts the insertions, deletions and replacements of bytes between a and b.
func editDistance(a, b string) int {
	if len(a) > 64 {
		a = a[:64]
	}

	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}

	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}

			diagonal = row[j+1]
			row[j+1] = min(cost, row[j+1]+1, row[j]+1)
		}
	}

	return row[len(b)]
}
