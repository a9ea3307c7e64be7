package site

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

// Redact is a document without its secrets, and what they were: also of one that has mistakes, as long as it
// is YAML. What a comment says after the name of a secret is hidden, too. Its error is that of a text which is not, and
// which may hold a secret anywhere.
func Redact(text []byte) (clean []byte, secrets []string, err error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, nil, err
	}
	if doc.IsZero() {
		return maskComments(text), nil, nil // there is nothing but comments
	}

	var hidden []*yaml.Node
	eachSecret(&doc, func(_ string, n *yaml.Node) {
		secrets = append(secrets, valueOf(n))
		hidden = append(hidden, n)
	})
	for _, n := range hidden {
		n.Alias = nil
		n.SetString(redacted)
		n.Style = yaml.DoubleQuotedStyle // a block would be one of several lines
	}
	hideComments(&doc)
	clean, err = yaml.Marshal(&doc)
	return clean, secrets, err
}

// eachSecret visits the scalars of a document that are secret and not empty, and the aliases that stand for one. The
// path of one has the names of what it is of in lists, so that it is the same after a list has got another order:
// /nodes/[node-1]/bmc/password.
func eachSecret(doc *yaml.Node, visit func(path string, n *yaml.Node)) {
	eachValue(doc, func(path string, n *yaml.Node, secret bool) {
		if secret && valueOf(n) != "" {
			visit(path, n)
		}
	})
}

// valueOf is the text of a scalar, or of what an alias stands for; that of an alias of more than a scalar is its name.
func valueOf(n *yaml.Node) string {
	if n.Kind == yaml.AliasNode && n.Alias.Kind == yaml.ScalarNode {
		return n.Alias.Value
	}
	return n.Value
}

// eachValue visits the scalars and the aliases of a document, but its keys, with whether they are secret.
func eachValue(doc *yaml.Node, visit func(path string, n *yaml.Node, secret bool)) {
	var walk func(n *yaml.Node, path string, secret bool)
	walk = func(n *yaml.Node, path string, secret bool) {
		switch n.Kind {
		case yaml.ScalarNode, yaml.AliasNode:
			visit(path, n, secret)
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				key := strings.ToLower(valueOf(n.Content[i]))
				walk(n.Content[i+1], path+"/"+key, secret || slices.Contains(secretKeys(), key))
			}
		case yaml.DocumentNode:
			for _, c := range n.Content {
				walk(c, path, secret)
			}
		case yaml.SequenceNode:
			seen := map[string]int{}
			for i, c := range n.Content {
				name := elementName(c, i)
				seen[name]++
				walk(c, fmt.Sprintf("%s/[%s]%s", path, name, strings.Repeat("'", seen[name]-1)), secret)
			}
		}
	}
	walk(doc, "", false)
}

// elementName is what an element of a list is known by: its name, else its user, else its place.
func elementName(n *yaml.Node, place int) string {
	if n.Kind == yaml.MappingNode {
		for _, key := range []string{"name", "username"} {
			for i := 0; i+1 < len(n.Content); i += 2 {
				if strings.EqualFold(n.Content[i].Value, key) && n.Content[i+1].Value != "" {
					return n.Content[i+1].Value
				}
			}
		}
	}
	return fmt.Sprintf("#%d", place)
}

// secretKeys are the names of all fields with a secret, in small letters: who gets a name's letters
// wrong gives a secret all the same.
var secretKeys = sync.OnceValue(func() []string {
	keys := listSecretKeys(reflect.TypeFor[Site](), map[reflect.Type]bool{})
	slices.Sort(keys)
	return slices.Compact(keys)
})

func listSecretKeys(t reflect.Type, seen map[reflect.Type]bool) (keys []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}

	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}

	seen[t] = true
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if f.Type == reflect.TypeFor[Secret]() || f.Type == reflect.TypeFor[PrivateKey]() {
			keys = append(keys, strings.ToLower(name))
		} else {
			keys = append(keys, listSecretKeys(f.Type, seen)...)
		}
	}

	return keys
}

// PlainSecrets are where a document has secrets in the clear, as paths: /nodes/[node-1]/bmc/password. What is hidden is
// none, and neither is the hash of a password. Its error is that of a text which is no YAML.
func PlainSecrets(text []byte) (paths []string, err error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	eachSecret(&doc, func(path string, n *yaml.Node) {
		if value := valueOf(n); value != redacted && !isCrypt(value) {
			paths = append(paths, path)
		}
	})
	return paths, nil
}
