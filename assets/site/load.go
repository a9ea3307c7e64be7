package site

import (
	"slices"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// Load reads a new document, called name in messages. It returns every problem found, sorted by line, and a nil Site if
// there is one. Absent, empty and comment-only data is the zero Site. Load fills in no defaults.
func Load(name string, data []byte) (*Site, Problems) {
	s, _, problems := load(name, data, true)
	return s, problems
}

// Accept reads a document that is in use, as Load does. What versions began to refuse after documents with it had been
// in use is no problem: an appliance starts again with the site that it had. It is in notes, sorted by line.
func Accept(name string, data []byte) (s *Site, notes, problems Problems) {
	return load(name, data, false)
}

// LoadAfter reads a new document in place of the one in use, as Load does. What Accept notes of the one in use is no
// problem of the new one, wherever in it it is.
func LoadAfter(name string, data, inUse []byte) (*Site, Problems) {
	s, notes, problems := Accept(name, data)
	_, before, _ := Accept(name, inUse)
	for _, n := range notes {
		if !slices.ContainsFunc(before, func(b Problem) bool { return b.Message == n.Message }) {
			problems = append(problems, n)
		}
	}
	if len(problems) > 0 {
		return nil, problems.Sort()
	}
	return s, nil
}

func load(name string, data []byte, isNew bool) (s *Site, notes, problems Problems) {
	r := reader{Document: yamldoc.Document{File: name, Kind: "a site file"}, isNew: isNew}
	s = &Site{}
	if r.Decode(data, s) {
		r.validate(s)
	}

	notes, problems = r.Notes(), r.Problems()
	if len(problems) > 0 {
		return nil, notes, problems
	}
	return s, notes, nil
}

// reader finds the problems of one document that its values have with each other.
type reader struct {
	yamldoc.Document
	isNew bool // it is not in use yet
}

// refuse reports what a document in use may have, because there was a version that accepted it. Two such things differ
// in their messages.
func (r *reader) refuse(path, format string, args ...any) {
	if r.isNew {
		r.Report(path, format, args...)
	} else {
		r.Note(path, format, args...)
	}
}
