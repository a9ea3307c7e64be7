package site

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// YAML writes the site as a document with its secrets hidden. It cannot be read back
// while a secret is hidden in it; see RevealedYAML.
func (s *Site) YAML() ([]byte, error) { return encode(s, Secret.String) }

// RevealedYAML writes the site as a document that Load reads back to an equal site. It
// holds every secret in clear: keep it where the site file is kept.
func (s *Site) RevealedYAML() ([]byte, error) { return encode(s, Secret.Reveal) }

// MarshalYAML is the document with its secrets hidden.
func (s *Site) MarshalYAML() (any, error) {
	return yamlNode(reflect.ValueOf(s).Elem(), Secret.String), nil
}

// MarshalJSON is the document with its secrets hidden, with the keys of the YAML.
func (s *Site) MarshalJSON() ([]byte, error) {
	var v map[string]any
	if err := yamlNode(reflect.ValueOf(s).Elem(), Secret.String).Decode(&v); err != nil {
		return nil, fmt.Errorf("encode site %s: %w", s.Name, err)
	}
	return json.Marshal(v)
}

func encode(s *Site, show func(Secret) string) ([]byte, error) {
	n := yamlNode(reflect.ValueOf(s).Elem(), show)
	if len(n.Content) == 0 {
		return []byte("# An empty site: networks are detected, servers are inspected.\n"), nil
	}

	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(n); err != nil {
		return nil, fmt.Errorf("encode site %s: %w", s.Name, err)
	}

	return b.Bytes(), nil
}

// yamlNode makes the YAML of v, leaving out what is zero, in the order of the fields.
func yamlNode(v reflect.Value, show func(Secret) string) *yaml.Node {
	if v.Kind() == reflect.Pointer {
		return yamlNode(v.Elem(), show)
	}

	if yamldoc.IsText(v.Type()) {
		switch t := v.Interface().(type) {
		case Secret:
			return textNode(show(t))
		case PrivateKey:
			return textNode(show(t.Secret))
		case Consent:
			if t == "true" || t == "false" {
				return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: string(t)}
			}
			return textNode(string(t))
		case netip.Addr:
			return textNode(t.String())
		case netip.Prefix:
			return textNode(t.String())
		case fmt.Stringer:
			return textNode(t.String())
		}
	}

	switch v.Kind() {
	case reflect.Struct:
		m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for i := range v.NumField() {
			f := v.Field(i)
			if f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 || f.Kind() == reflect.Map && f.Len() == 0 {
				continue
			}

			item := yamlNode(f, show)
			if f.Kind() == reflect.Struct && item.Kind == yaml.MappingNode && len(item.Content) == 0 {
				continue
			}

			m.Content = append(m.Content, textNode(v.Type().Field(i).Tag.Get("yaml")), item)
		}
		return m
	case reflect.Slice:
		l := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for i := range v.Len() {
			l.Content = append(l.Content, yamlNode(v.Index(i), show))
		}
		return l
	case reflect.Map:
		m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		labels, _ := v.Interface().(map[string]string)
		for _, k := range slices.Sorted(maps.Keys(labels)) {
			m.Content = append(m.Content, textNode(k), textNode(labels[k]))
		}

		return m
	case reflect.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v.Bool())}
	case reflect.Int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(v.Int(), 10)}
	}

	return textNode(v.String())
}

// textNode is a scalar that reads back as text: the encoder quotes it where that is needed.
func textNode(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}
