package site

import "firstlight.dev/firstlight/assets/yamldoc"

// Load reads a new document, called name in messages. It returns every problem found, sorted by line, and a nil Site if
// there is one. Absent, empty and comment-only data is the zero Site. Load fills in no defaults.
func Load(name string, data []byte) (*Site, Problems) {
	s, _, problems := (&reader{}).load(name, data)
	return s, problems
}

// Accept reads a document that is in use, as Load does. What versions began to refuse after documents with it had been
// in use is no problem: an appliance starts again with the site that it had. It is in notes, sorted by line.
func Accept(name string, data []byte) (s *Site, notes, problems Problems) {
	return (&reader{isInUse: true}).load(name, data)
}

// LoadAfter reads a new document in place of the one in use, as Load does. What Accept notes of the one in use is no
// problem of the new one, wherever in it it is.
func LoadAfter(name string, data, inUse []byte) (*Site, Problems) {
	before := reader{isInUse: true}
	before.load(name, inUse)
	s, _, problems := (&reader{before: before.refusals}).load(name, data)
	return s, problems
}

// reader finds the problems of one document that its values have with each other.
type reader struct {
	yamldoc.Document
	isInUse  bool
	before   map[refusal]int // that the document in use has, which this one replaces, with the largest extent of each
	refusals map[refusal]int
}

// refusal is something that a document in use may have, because there was a version that accepted it.
type refusal struct {
	reason refusalReason
	of     string // whose it is, or what
}

type refusalReason string

const (
	systemRefused    refusalReason = "system"
	imageOfDrive     refusalReason = "image-of-drive"
	imageCompressed  refusalReason = "image-compressed"
	imageOfCloud     refusalReason = "image-of-cloud"
	userDataUnclear  refusalReason = "user-data-unclear"
	loginToldOutside refusalReason = "login-told-outside"
	ignitionCluster  refusalReason = "ignition-cluster"
	tooFewAddresses  refusalReason = "too-few-addresses"
)

func (r *reader) load(name string, data []byte) (s *Site, notes, problems Problems) {
	r.Document = yamldoc.Document{File: name, Kind: "a site file"}
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

// refuse reports what only a document in use may have. A larger extent than in the document in use is refused.
func (r *reader) refuse(path string, what refusal, extent int, format string, args ...any) {
	if r.refusals == nil {
		r.refusals = map[refusal]int{}
	}
	r.refusals[what] = max(r.refusals[what], extent)
	if was, isKept := r.before[what]; r.isInUse || isKept && was >= extent {
		r.Note(path, format, args...)
	} else {
		r.Report(path, format, args...)
	}
}
