package supportbundle

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// hidden stands where a secret was.
const hidden = "[redacted]"

// least is the length of the shortest text that is hidden wherever it occurs: shorter ones
// are part of ordinary words. A shorter secret is still hidden after a word that announces it.
const least = 4

// Redactor takes secrets out of texts: every known one in each form in which it is written
// down, and whatever looks like one.
type Redactor struct {
	known    map[string]bool
	replacer *strings.Replacer
}

// Add makes a secret known. Of a text of several lines every part that is secret by itself
// (the lines of a private key, the values that a word announces) is known as well.
func (r *Redactor) Add(secret string) {
	if r.known == nil {
		r.known = map[string]bool{}
	}

	r.replacer = nil
	secret = strings.TrimSpace(secret)
	if !strings.Contains(secret, "\n") {
		r.addForms(secret)
		return
	}

	r.addForms(secret)
	r.addForms(secret + "\n")
	for _, block := range privateKey.FindAllString(secret, -1) {
		for line := range strings.Lines(block) {
			if line = strings.TrimSpace(line); len(line) >= 16 && !strings.HasPrefix(line, "-----") {
				r.addForms(line)
			}
		}
	}

	for _, m := range announced.FindAllStringSubmatch(secret, -1) {
		r.addForms(m[3])
	}

	for _, m := range hash.FindAllString(secret, -1) {
		r.addForms(m)
	}
}

// AddNamed makes what a file or a Secret holds under a name known, unless the name says that
// it is public, or the value is a word like others ("true").
func (r *Redactor) AddNamed(name, value string) {
	short := len(strings.TrimSpace(value)) < 8
	if isOpen(name) || short && !secretName.MatchString(name) {
		return
	}
	r.Add(value)
}

var secretName = regexp.MustCompile(`(?i)pass|secret|token|key`)

// addForms are the ways in which a secret is written down: as it is, in base64, in JSON, in an
// address.
func (r *Redactor) addForms(s string) {
	if len(s) < least {
		return
	}

	r.known[s] = true
	encoded := base64.StdEncoding.EncodeToString([]byte(s))
	all := []string{encoded, strings.TrimRight(
		encoded, "=",
	), base64.URLEncoding.EncodeToString([]byte(s)), url.QueryEscape(s)}
	if j, err := json.Marshal(s); err == nil {
		all = append(all, strings.Trim(string(j), `"`))
	}

	for _, form := range all {
		if len(form) >= least {
			r.known[form] = true
		}
	}
}

var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	// A word that announces a secret, what stands between, and the secret.
	announced = regexp.MustCompile(`(?i)\b((?:[a-z0-9]+[_-])*(?:password|passwd|passphrase|(?:ssh|sudo|become)_pass|client-key-data|token|secret-key|private-key|authorization))\b(\\?["']?[ \t]*[:=][ \t]*\\?["']?(?:(?:basic|bearer) )?)([^\s"'\\,;}\])]+)`)
	bootToken = regexp.MustCompile(`(/b/)[A-Za-z0-9_-]{43}\b`) // of an agent, in the addresses that it was told
	webToken  = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)
	hash      = regexp.MustCompile(`\$(?:2[abxy]?|5|6|y)\$[./A-Za-z0-9$=,]{20,}`)
	basic     = regexp.MustCompile(`(?i)\b(basic|bearer) [A-Za-z0-9+/=._~-]{8,}`)
	inAddress = regexp.MustCompile(`\b([a-z][a-z0-9+.-]*://[^\s/:@"']*):[^\s/@"']+@`)
	// A private key in base64, as Kubernetes writes Secrets: "-----BEGIN" at its three alignments.
	encodedKey = regexp.MustCompile(`(?:LS0tLS1CRUdJTi|0tLS0tQkVHSU4|tLS0tLUJFR0lO)[A-Za-z0-9+/=\r\n]{60,}`)
)

// Redact is a text without its secrets.
func (r *Redactor) Redact(text []byte) []byte {
	if r.replacer == nil {
		r.compile()
	}

	out := []byte(r.replacer.Replace(string(text)))
	out = privateKey.ReplaceAll(out, []byte(hidden))
	out = announced.ReplaceAllFunc(out, func(m []byte) []byte {
		p := announced.FindSubmatch(m)
		if isHarmless(string(p[3])) {
			return m
		}
		return slices.Concat(p[1], p[2], []byte(hidden))
	})
	out = bootToken.ReplaceAll(out, []byte("${1}"+hidden))
	out = webToken.ReplaceAll(out, []byte(hidden))
	out = hash.ReplaceAll(out, []byte(hidden))
	out = basic.ReplaceAllFunc(out, func(m []byte) []byte {
		if !bytes.ContainsAny(m, "0123456789=") {
			return m // words
		}
		word, _, _ := bytes.Cut(m, []byte(" "))
		return slices.Concat(word, []byte(" "+hidden))
	})
	out = inAddress.ReplaceAll(out, []byte("$1:"+hidden+"@"))
	return encodedKey.ReplaceAllFunc(out, func(m []byte) []byte {
		clean := strings.Map(func(c rune) rune {
			if c == '\r' || c == '\n' {
				return -1
			}
			return c
		}, string(m))
		// Certificates are written alike and are no secret.
		for shift := range 3 {
			text, _ := base64.RawStdEncoding.DecodeString(clean[min(
				shift, len(clean),
			) : len(clean)-(len(clean)-shift)%4])
			if bytes.Contains(text, []byte("PRIVATE KEY")) {
				return []byte(hidden)
			}
		}
		return m
	})
}

// isHarmless are words that follow "token:" and are none.
func isHarmless(s string) bool {
	switch strings.ToLower(strings.Trim(s, "*")) {
	case "", "true", "false", "null", "none", "nil", strings.Trim(hidden, "[]"), "[redacted":
		return true
	}
	return false
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
}

// decodeValue is what a Secret's value stands for.
func decodeValue(value string) string {
	text, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return value
	}
	return string(text)
}
