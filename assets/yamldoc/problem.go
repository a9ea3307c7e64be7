package yamldoc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a document: where it is, what it is, what to do.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"` // from 1; 0 if the whole file is meant
	Path    string `json:"path"` // nodes[2].bmc.address; empty if the whole file is meant
	Message string `json:"message"`
}

// String is the problem in one line: FILE:LINE: PATH: MESSAGE.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}

	b.WriteString(": ")
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}

	b.WriteString(p.Message)
	return b.String()
}

// Problems are all mistakes of a document, sorted by line. No problems is nil.
type Problems []Problem

// Sort returns the problems by line and path, each once.
func (ps Problems) Sort() Problems {
	all := slices.Clone(ps)
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, strings.Compare(a.Path, b.Path))
	})
	return slices.Compact(all)
}

// String is one line per problem.
func (ps Problems) String() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err is nil without problems, otherwise an error of one line per problem.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return errors.New(ps.String())
}

// Pos is where a part of a document is. A struct that embeds it learns its own.
type Pos struct {
	File string `json:"-"`
	Line int    `json:"-"` // from 1; 0 for a part that was not written
	Path string `json:"-"` // such as roots[0].packages
}

// Errorf is an error at this place; its text is that of a Problem.
func (p Pos) Errorf(format string, args ...any) error {
	return errors.New(Problem{p.File, p.Line, p.Path, fmt.Sprintf(format, args...)}.String())
}
