package yamldoc

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decodeValue decodes n into v; the types of the document bound its depth, whatever aliases say. tag is that of the
// field; list items have their list's tag.
func (d *Document) decodeValue(n *yaml.Node, v reflect.Value, path string, tag reflect.StructTag) {
	if d.values++; d.values > maxValues {
		if d.values == maxValues+1 {
			d.add(
				n.Line, path,
				fmt.Sprintf("aliases make this file larger than %d values; write the values out", maxValues),
			)
		}
		return
	}
	if n.Kind == yaml.AliasNode {
		d.decodeValue(n.Alias, v, path, tag)
		return
	}

	if _, ok := d.lines[path]; !ok {
		d.lines[path] = n.Line
	}

	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		d.add(
			n.Line, path,
			fmt.Sprintf("nothing is given here, want %s; give it or remove the line", expectedType(v.Type())),
		)
		return
	}

	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}

	if IsText(v.Type()) {
		d.decodeText(n, v, path)
		return
	}

	switch v.Kind() {
	case reflect.Struct:
		d.decodeObject(n, v, path)
	case reflect.Map:
		d.decodeMap(n, v, path)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.wrongType(n, v.Type(), path)
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			if d.values > maxValues {
				return
			}
			d.decodeValue(item, v.Index(i), path+"["+strconv.Itoa(i)+"]", tag)
		}
	default:
		d.decodeScalar(n, v, path, tag)
	}
}

// eachPair calls each for every key that is new in the mapping n and reports the others.
func (d *Document) eachPair(n *yaml.Node, path string, each func(key string, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			d.add(key.Line, path, "a key must be one word; write KEY: VALUE")
			continue
		}

		at := Join(path, key.Value)
		if first, ok := seen[key.Value]; ok {
			d.add(key.Line, at, fmt.Sprintf("given twice, first in line %d; keep one", first))
			continue
		}

		seen[key.Value] = key.Line
		d.lines[at] = key.Line
		each(key.Value, value)
	}
}

func (d *Document) decodeObject(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.wrongType(n, v.Type(), path)
		return
	}

	if p := v.FieldByName("Pos"); p.IsValid() && p.Type() == reflect.TypeFor[Pos]() {
		p.Set(reflect.ValueOf(Pos{d.File, d.lines[path], path}))
	}

	fields := map[string]int{}
	var known []string
	for i := range v.NumField() {
		if key := v.Type().Field(i).Tag.Get("yaml"); key != "" {
			fields[key] = i
			known = append(known, key)
		}
	}

	given := map[string]bool{}
	d.eachPair(n, path, func(key string, value *yaml.Node) {
		i, ok := fields[key]
		switch {
		case key == "<<" && !ok:
			d.add(value.Line, Join(path, key), "merge keys are not read; write the keys out")
		case !ok:
			d.add(d.lines[Join(path, key)], Join(path, key), "unknown key; "+Suggest(key, known))
		default:
			given[key] = true
			d.decodeValue(value, v.Field(i), Join(path, key), v.Type().Field(i).Tag)
		}
	})
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key, need := f.Tag.Get("yaml"), f.Tag.Get("need")
		switch {
		case given[key]:
		case need != "":
			d.add(n.Line, path, fmt.Sprintf("%s is missing; give %s", key, need))
		case f.Tag.Get("required") == "true":
			d.add(n.Line, path, fmt.Sprintf("%s is missing; add it", key))
		}
	}
}

// decodeMap decodes a map whose keys are text.
func (d *Document) decodeMap(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.wrongType(n, v.Type(), path)
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	d.eachPair(n, path, func(key string, value *yaml.Node) {
		at := Join(path, key)
		k, item := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		if text, ok := k.Addr().Interface().(Text); !ok {
			k.SetString(key)
		} else if err := text.ParseText(key); err != nil {
			d.add(d.lines[at], at, err.Error())
			return
		}

		d.decodeValue(value, item, at, "")
		v.SetMapIndex(k, item)
	})
}

// Join makes the path of a key; a key that is not one plain word is quoted.
func Join(path, key string) string {
	odd := func(c rune) bool {
		return !strings.ContainsRune("_/<-", c) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	}
	if key == "" || len(key) > 63 || strings.ContainsFunc(key, odd) {
		key = Quote(key)
	}

	if path == "" {
		return key
	}

	return path + "." + key
}
