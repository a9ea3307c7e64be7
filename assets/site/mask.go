package site

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// mark is how a hidden secret is written: without the quotes it would be a list.
const mark = `"` + redacted + `"`

// Mask is a document with its secrets hidden, for people who read or edit it: lines, order and comments are as they
// were written. Where a secret is written in a way that cannot be replaced in its place, such as quotes over several
// lines, all of the document is written as Redact does; so is the first of several documents. Its error is that of a
// text that is no YAML.
func Mask(text []byte) ([]byte, error) {
	clean, _, err := Redact(text)
	if err != nil {
		return nil, err
	}

	masked, ok := maskInPlace(text)
	if !ok || !isAlike(masked, clean) {
		return clean, nil
	}
	return masked, nil
}

func maskInPlace(text []byte) (masked []byte, ok bool) {
	var doc, second yaml.Node
	from := yaml.NewDecoder(bytes.NewReader(text))
	if from.Decode(&doc) != nil || !errors.Is(from.Decode(&second), io.EOF) {
		return nil, false // what follows the first document is no part of what is read, and may hold a secret anywhere
	}

	ok = true
	lines := lineStarts(text)
	var edits []edit
	eachSecret(&doc, func(_ string, n *yaml.Node) {
		start, end, found := span(text, lines, n)
		ok = ok && found
		edits = append(edits, edit{start, end, mark})
	})
	if !ok {
		return nil, false
	}
	return maskComments(replaceSpans(text, edits)), true
}

// Unmask puts the secrets of the document original back into what somebody made of Mask's text: each where the same
// node, store or user had it, by its name. A mark of which original has no secret stays, and Load says so with its line;
// so does that of a BMC, a store, an image or an issuer with another address now: who may not see a secret may not have it, or its
// hash, sent elsewhere.
func Unmask(masked, original []byte) []byte {
	if !bytes.Contains(masked, []byte(redacted)) {
		return masked
	}

	text := unmaskComments(masked, original)
	known := readSecrets(original)
	to, was := readAddresses(text), readAddresses(original)
	for path := range known {
		if of := path[:strings.LastIndex(path, "/")]; to[of] != was[of] {
			delete(known, path)
		}
	}
	for _, asWritten := range []bool{true, false} {
		if full := putSecrets(text, known, asWritten); hasSecrets(full, text, known) {
			return full
		}
	}
	return text // it is no YAML
}

// writtenSecret is a secret of a document.
type writtenSecret struct {
	value string
	raw   string // as it is written there, with its quotes; "" if that cannot be said
}

// readSecrets are the secrets of a document, by their paths.
func readSecrets(text []byte) map[string]writtenSecret {
	known := map[string]writtenSecret{}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return known
	}

	lines := lineStarts(text)
	eachSecret(&doc, func(path string, n *yaml.Node) {
		w := writtenSecret{value: valueOf(n)}
		if start, end, ok := span(text, lines, n); ok {
			w.raw = string(text[start:end])
		}
		known[path] = w
	})
	return known
}

// addressKeys are the keys of where something is that gets the secret beside them, or its hash.
func addressKeys() []string { return []string{"address", "endpoint", "issuer", "url"} }

// readAddresses are what the addresses of a document are, by the path of what has them.
func readAddresses(text []byte) map[string]string {
	all := map[string]string{}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return all
	}

	eachValue(&doc, func(path string, n *yaml.Node, _ bool) {
		i := strings.LastIndex(path, "/")
		if i >= 0 && slices.Contains(addressKeys(), path[i+1:]) {
			all[path[:i]] += path[i:] + "=" + valueOf(n) + "\n"
		}
	})
	return all
}

// putSecrets replaces marks by known secrets: as they were written, or in double quotes. What an alias has elsewhere,
// too, in a place that is shown, gets none.
func putSecrets(text []byte, known map[string]writtenSecret, asWritten bool) []byte {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return text
	}

	isShown := map[*yaml.Node]bool{}
	eachValue(&doc, func(_ string, n *yaml.Node, secret bool) {
		if n.Kind == yaml.AliasNode && !secret {
			isShown[n.Alias] = true
		}
	})

	lines := lineStarts(text)
	var edits []edit
	eachSecret(&doc, func(path string, n *yaml.Node) {
		secret, ok := known[path]
		start, end, found := span(text, lines, n)
		if n.Value != redacted || !ok || !found || isShown[n] {
			return
		}
		written := secret.raw
		if !asWritten || written == "" {
			written = quote(secret.value)
		}
		edits = append(edits, edit{start, end, written})
	})
	return replaceSpans(text, edits)
}

// hasSecrets reports whether full is text with each mark that is known replaced by the very secret.
func hasSecrets(full, text []byte, known map[string]writtenSecret) bool {
	before, after := readSecrets(text), readSecrets(full)
	if len(before) != len(after) {
		return false
	}

	for path, was := range before {
		want := was.value
		if secret, ok := known[path]; ok && want == redacted {
			want = secret.value
		}
		if now, ok := after[path]; !ok || now.value != want {
			return false
		}
	}
	return true
}

// quote is a text as YAML has it in double quotes, which JSON's are.
func quote(s string) string {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	_ = to.Encode(s) // a string, to memory
	return strings.TrimSpace(b.String())
}

// edit replaces a part of a text, by its bytes.
type edit struct {
	start, end int
	text       string
}

// replaceSpans is a text with parts replaced, which are in their order and do not overlap.
func replaceSpans(text []byte, edits []edit) []byte {
	var b bytes.Buffer
	at := 0
	for _, e := range edits {
		if e.start < at {
			continue // of an alias: it was replaced where its anchor is
		}
		b.Write(text[at:e.start])
		b.WriteString(e.text)
		at = e.end
	}
	b.Write(text[at:])
	return b.Bytes()
}

// properties are the anchor and the tag of a scalar, which are before it.
var properties = regexp.MustCompile(`^(?:[&!]\S*[ \t]+)+`)

// lineStarts is where each line of a text begins.
func lineStarts(text []byte) []int {
	starts := []int{0}
	for i, b := range text {
		if b == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// span is where an alias, a scalar of one line or a block is in its text, with its quotes; false if it is written in
// another way.
func span(text []byte, lines []int, n *yaml.Node) (start, end int, ok bool) {
	if start, ok = startOf(text, lines, n); !ok {
		return 0, 0, false
	}
	length, ok := scalarLength(text[start:], n)
	return start, start + length, ok
}

// startOf is where a scalar or an alias begins in its text, after its properties.
func startOf(text []byte, lines []int, n *yaml.Node) (start int, ok bool) {
	if n.Line < 1 || n.Line > len(lines) {
		return 0, false
	}
	start = lines[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRune(text[start:])
		if size == 0 {
			return 0, false
		}
		start += size
	}
	return start + len(properties.Find(text[start:])), true
}

// scalarLength is how many bytes a scalar or an alias takes at the beginning of a text, without the end of its last line.
func scalarLength(text []byte, n *yaml.Node) (int, bool) {
	if n.Kind == yaml.AliasNode {
		return len("*" + n.Value), bytes.HasPrefix(text, []byte("*"+n.Value))
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	var form *regexp.Regexp
	switch n.Style &^ yaml.TaggedStyle {
	case yaml.DoubleQuotedStyle:
		form = doubleQuoted
	case yaml.SingleQuotedStyle:
		form = singleQuoted
	case 0:
		return len(n.Value), bytes.HasPrefix(line, []byte(n.Value))
	case yaml.LiteralStyle, yaml.FoldedStyle:
		if !blockHeader.Match(line) || strings.TrimSpace(n.Value) == "" {
			return 0, false
		}
		return len(bytes.TrimRight(text[:blockLength(text)], "\r\n")), true
	default:
		return 0, false
	}
	length := len(form.Find(line))
	return length, length > 0
}

// blockHeader is one without an indentation of its own: the lines of such a block are indented as its first one.
var blockHeader = regexp.MustCompile(`^[|>][+-]?[ \t]*\r?$`)

var (
	doubleQuoted = regexp.MustCompile(`(?s)^"(?:[^"\\]|\\.)*"`)
	singleQuoted = regexp.MustCompile(`^'(?:[^']|'')*'`)
)

// isAlike reports whether two documents have the same values, however they are written and whatever comments they have.
func isAlike(a, b []byte) bool {
	var x, y yaml.Node
	if yaml.Unmarshal(a, &x) != nil || yaml.Unmarshal(b, &y) != nil {
		return false
	}
	return isSameNode(&x, &y)
}

func isSameNode(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.Value != b.Value || a.ShortTag() != b.ShortTag() || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !isSameNode(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}
