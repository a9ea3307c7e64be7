package yamldoc

import (
	"fmt"
	"regexp"
)

// foldAfter is how many problems of one kind Fold keeps.
const foldAfter = 3

var (
	indexForm = regexp.MustCompile(`\[\d+\]`)
	valueForm = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\d+`)
)

// Fold keeps the first problems of each kind and counts the rest in one that stands after them: a mistake that a program
// made in five hundred nodes is one mistake. A kind is a path without its numbers and a message without its values.
func (ps Problems) Fold() Problems {
	kind := func(p Problem) string {
		return p.File + "\n" + indexForm.ReplaceAllString(p.Path, "[]") + "\n" + valueForm.ReplaceAllString(p.Message, "?")
	}
	count, last := map[string]int{}, map[string]int{}
	for _, p := range ps {
		count[kind(p)]++
		last[kind(p)] = p.Line
	}

	var out Problems
	seen := map[string]int{}
	for _, p := range ps {
		k := kind(p)
		seen[k]++
		switch {
		case seen[k] <= foldAfter || count[k] == foldAfter+1:
			out = append(out, p)
		case seen[k] == foldAfter+1:
			out = append(out, Problem{p.File, p.Line, indexForm.ReplaceAllString(p.Path, "[]"),
				fmt.Sprintf("and %d more of this kind, to line %d", count[k]-foldAfter, last[k])})
		}
	}

	return out
}
