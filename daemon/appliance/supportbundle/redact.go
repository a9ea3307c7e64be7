package supportbundle

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// hidden stands where a secret was.
const hidden = "[redacted]"

// Lengths of texts, in bytes.
const (
	least = 4 // shorter ones are part of every word: hidden after a name that announces them
	whole = 8 // from here on hidden wherever it occurs, below it where no letter or digit is next to it
)

// Redactor takes secrets out of texts: every known one in each form in which it is written
// down, and whatever looks like one.
type Redactor struct {
	known    map[string]bool
	short    map[string]bool
	replacer *strings.Replacer
	words    *regexp.Regexp // short ones, as words of their own; nil: there are none
}

// Add makes a secret known. Of a text of several lines every part that is secret by itself
// (the lines of a private key or of a short file, the values that a name announces) is known as well.
func (r *Redactor) Add(secret string) {
	secret = strings.TrimSpace(secret)
	r.addForms(secret)
	if !strings.Contains(secret, "\n") {
		return
	}

	r.addForms(secret + "\n")
	for _, block := range privateKey.FindAllString(secret, -1) {
		for line := range strings.Lines(block) {
			if line = strings.TrimSpace(line); len(line) >= 16 && !strings.HasPrefix(line, "-----") {
				r.addForms(line)
			}
		}
	}

	r.addAnnounced(secret)
	for _, m := range hash.FindAllString(secret, -1) {
		r.addForms(m)
	}

	lines := strings.Split(secret, "\n")
	if len(lines) > 3 || privateKey.MatchString(secret) {
		return
	}
	// A few lines are values or NAME:VALUE.
	for _, line := range lines {
		line = strings.TrimSpace(line)
		r.addForms(line)
		if _, value, named := strings.Cut(line, ":"); named {
			r.addForms(strings.TrimSpace(value))
		}
	}
}

// addAnnounced makes the values known that names in a text announce.
func (r *Redactor) addAnnounced(text string) {
	for _, value := range announcedValues(text) {
		r.addForms(value)
	}
}

// AddNamed makes what a file or a Secret holds under a name known, unless the name says that
// it is public, or the value is a word like others ("true").
func (r *Redactor) AddNamed(name, value string) {
	short := len(strings.TrimSpace(value)) < whole
	switch {
	case strings.HasSuffix(strings.ToLower(name), ".yaml"):
		r.addAnnounced(value) // a configuration, with what is secret in it
	case strings.HasSuffix(strings.ToLower(name), ".json"):
		r.Add(value)
		r.addAnnounced(value) // also of one line
	case isOpen(name) || short && !secretName.MatchString(name):
	default:
		r.Add(value)
	}
}

var secretName = regexp.MustCompile(`(?i)pass|secret|token|key`)

// plainWord are short secrets that are words of ordinary texts too, or numbers: where nothing announces them they are
// taken for those. One of them hidden everywhere would be told by where the marks are.
var plainWord = regexp.MustCompile(`^(?:[A-Za-z]+|[0-9]+)$`)

func (r *Redactor) addForms(s string) {
	if len(s) < least || isHarmless(s) {
		return
	}
	if r.known == nil {
		r.known, r.short = map[string]bool{}, map[string]bool{}
	}

	r.replacer = nil
	for _, form := range writtenForms(s) {
		switch {
		case len(s) >= whole && len(form) >= whole:
			r.known[form] = true
		case len(form) >= least && !plainWord.MatchString(form):
			r.short[form] = true
		}
	}
}

// Redact is a text without its secrets.
func (r *Redactor) Redact(text []byte) []byte {
	if r.replacer == nil {
		r.compile()
	}

	out := []byte(r.replacer.Replace(string(text)))
	if r.words != nil {
		out = replaceWords(r.words, out)
	}
	return hideSuspects(out)
}

// replaceWords hides what a pattern finds where neither a letter nor a digit is next to it.
func replaceWords(words *regexp.Regexp, text []byte) []byte {
	var out []byte
	done := 0
	for _, m := range words.FindAllIndex(text, -1) {
		if m[0] > 0 && isWord(text[m[0]-1]) && isWord(text[m[0]]) || m[1] < len(text) && isWord(text[m[1]]) && isWord(text[m[1]-1]) {
			continue
		}
		out = append(append(out, text[done:m[0]]...), hidden...)
		done = m[1]
	}
	return append(out, text[done:]...)
}

// compile sorts the longest first: a secret that contains another must go as a whole.
func (r *Redactor) compile() {
	all := make([]string, 0, len(r.known))
	for s := range r.known {
		all = append(all, s)
	}

	slices.SortFunc(all, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	pairs := make([]string, 0, 2*len(all))
	for _, s := range all {
		pairs = append(pairs, s, hidden)
	}

	r.replacer = strings.NewReplacer(pairs...)
	r.words = nil
	if len(r.short) > 0 {
		var words []string
		for s := range r.short {
			words = append(words, regexp.QuoteMeta(s))
		}
		slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
		r.words = regexp.MustCompile(strings.Join(words, "|"))
	}
}

// decodeValue is what a Secret's value stands for.
func decodeValue(value string) string {
	text, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return value
	}
	return string(text)
}
