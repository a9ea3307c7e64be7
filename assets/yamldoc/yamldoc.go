// Package yamldoc reads one strict YAML document into Go values: no unknown key, no key twice, no silent conversion
// between types. It tells every mistake at once, each with its line, its path and what to do.
//
// The types of the values say what is wanted. Tags of a struct's fields: yaml, the key; required:"true"; need, which is
// required and says what to give; enum, "a|b"; pattern with hint; min and max of whole numbers.
package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the most bytes that a document may have.
const MaxSize = 1 << 20

// MaxProblems is how many problems are told of one document: more than that is not what it is taken for.
const MaxProblems = 200

const maxValues = 200_000 // visited in one document, aliases expanded

// Document is one document that is read. It remembers the line of every path.
type Document struct {
	File     string // as messages name it
	Kind     string // what it is called in messages, such as "a site file"
	FreeText bool   // a string may have any text, several lines too, and need not be written as a string

	lines    map[string]int
	problems Problems
	notes    Problems
	values   int
}

// Decode reads data into the struct that into points to. It returns whether there is a document that could be read as
// far as its values, which may have problems. Nothing but comments is no document, and no problem.
func (d *Document) Decode(data []byte, into any) bool {
	d.lines = map[string]int{}
	if len(data) > MaxSize {
		d.add(0, "", fmt.Sprintf("the file has %d bytes; %s has at most %d (1 MiB)", len(data), d.Kind, MaxSize))
		return false
	}
	if !utf8.Valid(data) {
		d.add(lineOfInvalid(data), "", "this is not UTF-8 text; save the file as UTF-8")
		return false
	}

	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return false
	} else if err != nil {
		d.addSyntaxError(data, err)
		return false
	}

	if err := dec.Decode(&second); err == nil {
		d.add(
			second.Line, "",
			fmt.Sprintf("a second document begins here; %s is one document, remove the '---'", d.Kind),
		)
	} else if !errors.Is(err, io.EOF) {
		d.addSyntaxError(data, err)
		return false
	}

	if root := doc.Content[0]; root.Kind != yaml.ScalarNode || root.ShortTag() != "!!null" {
		d.decodeValue(root, reflect.ValueOf(into).Elem(), "", "")
	}

	return d.values <= maxValues && len(d.problems) < MaxProblems
}

func lineOfInvalid(data []byte) int {
	line := 1
	for len(data) > 0 {
		c, size := utf8.DecodeRune(data)
		if c == utf8.RuneError && size == 1 {
			break
		}

		if c == '\n' {
			line++
		}

		data = data[size:]
	}
	return line
}

func (d *Document) addSyntaxError(data []byte, err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}

	line = max(line, brokenLine(data))
	message = strings.Join(strings.Fields(message), " ")
	if at := tabbedLine(data, line); at > 0 {
		d.add(at, "", "this is not YAML: a tab indents this line; use blanks")
		return
	}

	d.add(line, "", "this is not YAML: "+message+"; check the indentation, colons and quotes here and in the line above")
}

// tabbedLine is the number of the line indented with a tab that makes line, or the one after it, no YAML; 0 if there is
// none. A tab elsewhere is allowed (YAML 1.2, 6.1).
func tabbedLine(data []byte, line int) int {
	lines := bytes.Split(data, []byte("\n"))
	for _, at := range []int{line, line + 1, line - 1} {
		if at < 1 || at > len(lines) {
			continue
		}
		text := lines[at-1]
		if indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]; bytes.ContainsRune(indent, '\t') {
			return at
		}
	}
	return 0
}

// brokenLine is the number of a line with which data stops being YAML while the lines
// before it are. The parser itself names where the enclosing block began. It is not
// looked for in what is much larger than documents are, where it would take seconds.
func brokenLine(data []byte) int {
	if len(data) > MaxSize/8 {
		return 0
	}

	lines := bytes.SplitAfter(data, []byte("\n"))
	good, bad := 0, len(lines)
	for bad-good > 1 {
		middle := (good + bad) / 2
		var doc yaml.Node
		if yaml.Unmarshal(bytes.Join(lines[:middle], nil), &doc) == nil {
			good = middle
		} else {
			bad = middle
		}
	}

	return bad
}

func (d *Document) add(line int, path, message string) {
	if len(d.problems) == MaxProblems {
		d.problems = append(d.problems, Problem{d.File, 1<<31 - 1, "", ""})
	}
	if len(d.problems) > MaxProblems {
		return
	}
	d.problems = append(d.problems, Problem{d.File, line, path, message})
}

// IsFull reports whether more problems were found than are told: what is reported from now on is not.
func (d *Document) IsFull() bool { return len(d.problems) > MaxProblems }

// IsGiven reports whether there is something at a path.
func (d *Document) IsGiven(path string) bool { _, ok := d.lines[path]; return ok }

// Report adds a problem of the value at path, or where the nearest value around it stands.
func (d *Document) Report(path, format string, args ...any) {
	d.add(d.lineOf(path), path, fmt.Sprintf(format, args...))
}

// Note adds what is wrong with the value at path and no problem of the document.
func (d *Document) Note(path, format string, args ...any) {
	if len(d.notes) < MaxProblems {
		d.notes = append(d.notes, Problem{d.File, d.lineOf(path), path, fmt.Sprintf(format, args...)})
	}
}

// lineOf is the line of the value at path, or of the nearest one around it.
func (d *Document) lineOf(path string) int {
	for p := path; ; {
		if line, ok := d.lines[p]; ok || p == "" {
			return line
		}
		p = p[:max(strings.LastIndexAny(p, ".["), 0)]
	}
}

// Notes returns the first MaxProblems that were noted, by line, each once.
func (d *Document) Notes() Problems { return d.notes.Sort() }

// Problems returns the problems by line, each once.
func (d *Document) Problems() Problems {
	d.problems = d.problems.Sort()
	if n := len(d.problems); n > MaxProblems {
		d.problems[n-1] = Problem{d.File, d.problems[n-2].Line, "", "and more problems; correct these first"}
	}

	return d.problems
}
