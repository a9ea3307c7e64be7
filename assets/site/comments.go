package site

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// announced is a comment that names a secret, also as a part of a word such as oldPassword, and what follows.
var announced = sync.OnceValue(func() *regexp.Regexp {
	keys := strings.Join(secretKeys(), "|")
	return regexp.MustCompile(`(?i)(#.*?(?:` + keys + `)\w*["']?[ \t]*(?:[:=]|(?:is|was)\b)[ \t]*)(\S.*)$`)
})

// maskComments hides what comments say after the name of a secret.
func maskComments(text []byte) []byte {
	in := readScalars(text)
	return eachLine(text, func(line string, at int) string {
		_, end, ok := in.findAnnounced(line, at)
		if !ok {
			return line
		}
		return line[:end] + redacted
	})
}

// unmaskComments puts back what maskComments hid, where a comment is as it was left. What a value has is no comment: it
// is shown, and goes elsewhere.
func unmaskComments(text, original []byte) []byte {
	hidden := map[string][]string{}
	in := readScalars(original)
	eachLine(original, func(line string, at int) string {
		if begin, end, ok := in.findAnnounced(line, at); ok {
			masked := line[begin:end] + redacted
			hidden[masked] = append(hidden[masked], line[begin:])
		}
		return line
	})

	in = readScalars(text)
	full := eachLine(text, func(line string, at int) string {
		begin, _, ok := in.findAnnounced(line, at)
		if !ok || len(hidden[line[begin:]]) == 0 {
			return line
		}
		was := hidden[line[begin:]]
		hidden[line[begin:]] = was[1:]
		return line[:begin] + was[0]
	})
	if !isAlike(full, text) {
		return text
	}
	return full
}

// scalars are where the scalars of a document are that may look as if they had a comment, in their order.
type scalars []struct{ start, end int }

// readScalars finds them, so that none reaches too far: a comment that is taken for a part of one would be shown.
func readScalars(text []byte) (all scalars) {
	var doc yaml.Node
	if yaml.Unmarshal(text, &doc) != nil {
		return nil
	}

	lines := lineStarts(text)
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		for _, c := range n.Content {
			walk(c)
		}
		if n.Kind != yaml.ScalarNode || !strings.Contains(n.Value, "#") {
			return
		}
		start, ok := startOf(text, lines, n)
		if !ok {
			return
		}
		all = append(all, struct{ start, end int }{start, start + textLength(text[start:], n)})
	}
	walk(&doc)
	return all
}

// textLength is how many bytes a scalar takes at the beginning of a text; 0 if that cannot be said.
func textLength(text []byte, n *yaml.Node) int {
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return blockLength(text)
	case n.Style&yaml.DoubleQuotedStyle != 0:
		return len(doubleQuoted.Find(text))
	case n.Style&yaml.SingleQuotedStyle != 0:
		return len(singleQuoted.Find(text))
	case bytes.HasPrefix(text, []byte(n.Value)):
		return len(n.Value)
	}
	return 0
}

// blockLength is how many bytes a block that is not empty takes with its header: its lines are indented as its first one,
// or more (YAML 1.2, section 8.1).
func blockLength(text []byte) (length int) {
	indent := -1
	for line := range bytes.Lines(text) {
		if length > 0 && len(bytes.Trim(line, " \r\n")) > 0 { // a tab is text
			of := len(line) - len(bytes.TrimLeft(line, " "))
			if indent < 0 {
				indent = of
			}
			if of < indent {
				break
			}
		}
		length += len(line)
	}
	return length
}

// findAnnounced is where in a line, which begins at a byte of the text, a comment begins and where what it says of a
// secret does.
func (in scalars) findAnnounced(line string, at int) (begin, end int, ok bool) {
	for from := 0; from < len(line); {
		found := announced().FindStringSubmatchIndex(line[from:])
		if found == nil {
			return 0, 0, false
		}
		begin, end = from+found[2], from+found[3]
		i, _ := slices.BinarySearchFunc(in, at+begin+1, func(s struct{ start, end int }, place int) int {
			return cmp.Compare(s.start, place)
		})
		if i == 0 || in[i-1].end <= at+begin {
			return begin, end, true
		}
		from = in[i-1].end - at
	}
	return 0, 0, false
}

// eachLine changes each line of a text, which keeps its ends of lines. change gets where the line begins, too.
func eachLine(text []byte, change func(line string, at int) string) []byte {
	lines, at := strings.Split(string(text), "\n"), 0
	for i, line := range lines {
		bare := strings.TrimSuffix(line, "\r")
		lines[i] = change(bare, at) + line[len(bare):]
		at += len(line) + 1
	}
	return []byte(strings.Join(lines, "\n"))
}

// hideComments is maskComments of a document that was read.
func hideComments(n *yaml.Node) {
	for _, comment := range []*string{&n.HeadComment, &n.LineComment, &n.FootComment} {
		*comment = string(maskComments([]byte(*comment)))
	}
	for _, c := range n.Content {
		hideComments(c)
	}
}
