package recipe

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Pos says where a part of the recipe was written.
type Pos struct {
	File string `json:"-"`
	Line int    `json:"-"` // from 1; 0 for a part that was not written
	Path string `json:"-"` // like roots[0].packages
}

// Errorf is an error at this place: "FILE:LINE: PATH: what; what to do".
func (p Pos) Errorf(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if p.Path == "" {
		return fmt.Errorf("%s:%d: %s", p.File, p.Line, text)
	}
	return fmt.Errorf("%s:%d: %s: %s", p.File, p.Line, p.Path, text)
}

func (p Pos) field(name string, line int) Pos {
	path := name
	if p.Path != "" {
		path = p.Path + "." + name
	}
	return Pos{File: p.File, Line: line, Path: path}
}

func (p Pos) index(i, line int) Pos {
	return Pos{File: p.File, Line: line, Path: fmt.Sprintf("%s[%d]", p.Path, i)}
}

// decode fills v from a YAML node: no unknown field, no field twice, no missing
// field that is tagged need:"...", and no silent conversion between types.
func decode(at Pos, node *yaml.Node, v reflect.Value) error {
	if node.Kind == yaml.AliasNode || node.Anchor != "" {
		return at.Errorf("anchors and aliases are not read here; write the value out")
	}
	switch v.Kind() {
	case reflect.Struct:
		return decodeStruct(at, node, v)
	case reflect.Slice:
		return decodeSlice(at, node, v)
	case reflect.Map:
		return decodeMap(at, node, v)
	default:
		return decodeScalar(at, node, v)
	}
}

func decodeStruct(at Pos, node *yaml.Node, v reflect.Value) error {
	if node.Kind != yaml.MappingNode {
		return at.Errorf("%s is not a mapping; write fields: %s", describeNode(node), strings.Join(fieldNames(v.Type()), ", "))
	}
	if p := v.FieldByName("Pos"); p.IsValid() {
		p.Set(reflect.ValueOf(at))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		where := at.field(key.Value, key.Line)
		index := fieldIndex(v.Type(), key.Value)
		if index < 0 {
			return where.Errorf("no such field; the fields here are %s", strings.Join(fieldNames(v.Type()), ", "))
		}
		if seen[key.Value] {
			return where.Errorf("written twice; keep one")
		}
		seen[key.Value] = true
		if err := decode(where, value, v.Field(index)); err != nil {
			return err
		}
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if need := field.Tag.Get("need"); need != "" && !seen[field.Tag.Get("yaml")] {
			return at.Errorf("%s is missing; give %s", field.Tag.Get("yaml"), need)
		}
	}
	return nil
}

func decodeSlice(at Pos, node *yaml.Node, v reflect.Value) error {
	if node.Kind != yaml.SequenceNode {
		return at.Errorf("%s is not a list; write [a, b] or lines with a dash", describeNode(node))
	}
	v.Set(reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content)))
	for i, item := range node.Content {
		if err := decode(at.index(i, item.Line), item, v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// decodeMap reads a mapping of strings to strings.
func decodeMap(at Pos, node *yaml.Node, v reflect.Value) error {
	if node.Kind != yaml.MappingNode {
		return at.Errorf("%s is not a mapping; write {name: value}", describeNode(node))
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		where := at.field(key.Value, key.Line)
		if v.MapIndex(reflect.ValueOf(key.Value)).IsValid() {
			return where.Errorf("written twice; keep one")
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if err := decode(where, value, item); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(key.Value), item)
	}
	return nil
}

func decodeScalar(at Pos, node *yaml.Node, v reflect.Value) error {
	if node.Kind != yaml.ScalarNode {
		return at.Errorf("%s where a single value belongs", describeNode(node))
	}
	switch v.Kind() {
	case reflect.Bool:
		if node.Value != "true" && node.Value != "false" {
			return at.Errorf("%q is neither true nor false", node.Value)
		}
		v.SetBool(node.Value == "true")
	case reflect.Int:
		n, err := strconv.Atoi(node.Value)
		if err != nil {
			return at.Errorf("%q is not a whole number", node.Value)
		}
		v.SetInt(int64(n))
	default:
		if node.Tag == "!!null" {
			return at.Errorf("empty; give a value or leave the field out")
		}
		v.SetString(node.Value)
	}
	return nil
}

func describeNode(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	if node.Tag == "!!null" {
		return "nothing"
	}
	return strconv.Quote(node.Value)
}

func fieldIndex(t reflect.Type, name string) int {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") == name {
			return i
		}
	}
	return -1
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if tag := t.Field(i).Tag.Get("yaml"); tag != "" {
			names = append(names, tag)
		}
	}
	return names
}

// Fields lists every field a recipe may have, as dotted paths with [] for lists,
// sorted. The documentation is held to it.
func Fields() []string {
	var all []string
	var walk func(prefix string, t reflect.Type)
	walk = func(prefix string, t reflect.Type) {
		for t.Kind() == reflect.Slice {
			prefix, t = prefix+"[]", t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for i := range t.NumField() {
			if tag := t.Field(i).Tag.Get("yaml"); tag != "" {
				path := strings.TrimPrefix(prefix+"."+tag, ".")
				all = append(all, path)
				walk(path, t.Field(i).Type)
			}
		}
	}
	walk("", reflect.TypeOf(Recipe{}))
	slices.Sort(all)
	return all
}
