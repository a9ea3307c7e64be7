package site

import (
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Redact is a document without its secrets, and what they were: also of one that has mistakes, as long as it
// is YAML. Its error is that of a text which is not, and which may hold a secret anywhere.
func Redact(text []byte) (clean []byte, secrets []string, err error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, nil, err
	}

	keys := secretKeys(reflect.TypeFor[Site](), map[reflect.Type]bool{})
	var walk func(n *yaml.Node, secret bool)
	walk = func(n *yaml.Node, secret bool) {
		switch n.Kind {
		case yaml.ScalarNode:
			if secret && n.Value != "" {
				secrets = append(secrets, n.Value)
				n.SetString(redacted)
			}
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				walk(n.Content[i+1], secret || slices.Contains(keys, strings.ToLower(n.Content[i].Value)))
			}
		case yaml.DocumentNode, yaml.SequenceNode:
			for _, c := range n.Content {
				walk(c, secret)
			}
		}
	}
	walk(&doc, false)
	clean, err = yaml.Marshal(&doc)
	return clean, secrets, err
}

// secretKeys are the names of all fields with a secret, in small letters: who gets a name's letters
// wrong gives a secret all the same.
func secretKeys(t reflect.Type, seen map[reflect.Type]bool) (keys []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}

	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}

	seen[t] = true
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if f.Type == reflect.TypeFor[Secret]() {
			keys = append(keys, strings.ToLower(name))
		} else {
			keys = append(keys, secretKeys(f.Type, seen)...)
		}
	}

	return keys
}
