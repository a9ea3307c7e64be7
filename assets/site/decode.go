package site

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	maxValues   = 200_000 // values visited in one document, aliases expanded
	maxProblems = 200     // more than that is not a site file
)

// reader turns one document into a Site, remembering the line of every path.
type reader struct {
	file     string
	lines    map[string]int
	problems Problems
	values   int
}

func (r *reader) load(data []byte) *Site {
	s := &Site{}
	if len(data) > MaxSize {
		r.add(0, "", fmt.Sprintf("the file has %d bytes; a site file has at most %d (1 MiB)", len(data), MaxSize))
		return s
	}
	if !utf8.Valid(data) {
		r.add(lineOfInvalid(data), "", "this is not UTF-8 text; save the file as UTF-8")
		return s
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return s
	} else if err != nil {
		r.reportSyntaxError(data, err)
		return s
	}
	if err := dec.Decode(&second); err == nil {
		r.add(second.Line, "", "a second document begins here; a site file is one document, remove the '---'")
	} else if !errors.Is(err, io.EOF) {
		r.reportSyntaxError(data, err)
		return s
	}
	if root := doc.Content[0]; root.Kind != yaml.ScalarNode || root.ShortTag() != "!!null" {
		r.decodeValue(root, reflect.ValueOf(s).Elem(), "", "")
	}
	if r.values <= maxValues && len(r.problems) < maxProblems {
		r.validate(s)
	}
	return s
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

func (r *reader) reportSyntaxError(data []byte, err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := regexp.MustCompile(`^line (\d+): `).FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	line = max(line, brokenLine(data))
	message = strings.Join(strings.Fields(message), " ")
	r.add(line, "", "this is not YAML: "+message+"; look at indentation, colons and quotes here and in the line above")
}

// brokenLine is the number of a line with which data stops being YAML while the lines
// before it are. The parser itself names where the enclosing block began. It is not
// looked for in what is much larger than a site, where it would take seconds.
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

func (r *reader) add(line int, path, message string) {
	if len(r.problems) == maxProblems {
		r.problems = append(r.problems, Problem{r.file, 1<<31 - 1, "", ""})
	}
	if len(r.problems) > maxProblems {
		return
	}
	r.problems = append(r.problems, Problem{r.file, line, path, message})
}

// report adds a problem of the value at path, or where the nearest value around it stands.
func (r *reader) report(path, format string, args ...any) {
	for p := path; ; {
		if line, ok := r.lines[p]; ok || p == "" {
			r.add(line, path, fmt.Sprintf(format, args...))
			return
		}
		p = p[:max(strings.LastIndexAny(p, ".["), 0)]
	}
}

// sortedProblems gives the problems by line, each once.
func (r *reader) sortedProblems() Problems {
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, strings.Compare(a.Path, b.Path))
	})
	if n := len(r.problems); n > maxProblems {
		r.problems[n-1] = Problem{r.file, r.problems[n-2].Line, "", "and more problems; correct these first"}
	}
	return r.problems
}

// decodeValue decodes n into v; the types of the document bound its depth, whatever aliases say. tag is that of the field; list items have their list's tag.
func (r *reader) decodeValue(n *yaml.Node, v reflect.Value, path string, tag reflect.StructTag) {
	if r.values++; r.values > maxValues {
		if r.values == maxValues+1 {
			r.add(n.Line, path, fmt.Sprintf("aliases make this file larger than %d values; write the values out", maxValues))
		}
		return
	}
	if n.Kind == yaml.AliasNode {
		r.decodeValue(n.Alias, v, path, tag)
		return
	}
	if _, ok := r.lines[path]; !ok {
		r.lines[path] = n.Line
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		r.add(n.Line, path, fmt.Sprintf("nothing is given here, want %s; give it or remove the line", expectedType(v.Type())))
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if isText(v.Type()) {
		r.decodeText(n, v, path)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		r.decodeObject(n, v, path)
	case reflect.Map:
		r.decodeLabels(n, v, path)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			r.wrongType(n, v.Type(), path)
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			if r.values > maxValues {
				return
			}
			r.decodeValue(item, v.Index(i), path+"["+strconv.Itoa(i)+"]", tag)
		}
	default:
		r.decodeScalar(n, v, path, tag)
	}
}

// eachPair calls each for every key that is new in the mapping n and reports the others.
func (r *reader) eachPair(n *yaml.Node, path string, each func(key string, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			r.add(key.Line, path, "a key must be one word; write KEY: VALUE")
			continue
		}
		at := join(path, key.Value)
		if first, ok := seen[key.Value]; ok {
			r.add(key.Line, at, fmt.Sprintf("given twice, first in line %d; keep one", first))
			continue
		}
		seen[key.Value] = key.Line
		r.lines[at] = key.Line
		each(key.Value, value)
	}
}

func (r *reader) decodeObject(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		r.wrongType(n, v.Type(), path)
		return
	}
	fields := map[string]int{}
	var known []string
	for i := range v.NumField() {
		key := v.Type().Field(i).Tag.Get("yaml")
		fields[key] = i
		known = append(known, key)
	}
	given := map[string]bool{}
	r.eachPair(n, path, func(key string, value *yaml.Node) {
		i, ok := fields[key]
		switch {
		case key == "<<" && !ok:
			r.add(value.Line, join(path, key), "merge keys are not read; write the keys out")
		case !ok:
			r.add(r.lines[join(path, key)], join(path, key), "unknown key; "+suggest(key, known))
		default:
			given[key] = true
			r.decodeValue(value, v.Field(i), join(path, key), v.Type().Field(i).Tag)
		}
	})
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if key := f.Tag.Get("yaml"); f.Tag.Get("required") == "true" && !given[key] {
			r.add(n.Line, path, fmt.Sprintf("%s is missing; add it", key))
		}
	}
}

// decodeLabels decodes a map of text to text.
func (r *reader) decodeLabels(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		r.wrongType(n, v.Type(), path)
		return
	}
	m := map[string]string{}
	r.eachPair(n, path, func(key string, value *yaml.Node) {
		var s string
		r.decodeValue(value, reflect.ValueOf(&s).Elem(), join(path, key), "")
		m[key] = s
	})
	v.Set(reflect.ValueOf(m))
}

// join makes the path of a key; a key that is not one plain word is quoted.
func join(path, key string) string {
	odd := func(c rune) bool {
		return !strings.ContainsRune("_/<-", c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	}
	if key == "" || len(key) > 63 || strings.ContainsFunc(key, odd) {
		key = quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}
