package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is one YAML document: nodes keep what scalars look like, so that nothing but images is changed.
type document struct {
	file string
	root *yaml.Node
}

// parse reads all documents. Those that only helm test runs are left out.
func parse(files []file) (all []document, err error) {
	for _, f := range files {
		decoder := yaml.NewDecoder(bytes.NewReader(f.text))
		for {
			root := &yaml.Node{}
			if err := decoder.Decode(root); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}

			d := document{f.name, root}
			switch top := d.top(); {
			case top == nil:
			case top.Kind != yaml.MappingNode || text(top, "kind") == "" || text(top, "apiVersion") == "":
				return nil, fmt.Errorf("%s:%d: no object: it has no apiVersion or no kind", f.name, top.Line)
			case !isTest(top):
				all = append(all, d)
			}
		}
	}
	return all, nil
}

// top is the document's mapping; nil if it is empty.
func (d document) top() *yaml.Node {
	if len(d.root.Content) == 0 || d.root.Content[0].Tag == "!!null" {
		return nil
	}
	return d.root.Content[0]
}

// field is a value of a mapping; nil if there is none.
func field(n *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		if n == nil || n.Kind != yaml.MappingNode {
			return nil
		}
		i := 0
		for i < len(n.Content) && n.Content[i].Value != key {
			i += 2
		}
		if i >= len(n.Content) {
			return nil
		}
		n = n.Content[i+1]
	}
	return n
}

// text is a scalar of a mapping; "" if there is none.
func text(n *yaml.Node, keys ...string) string {
	if f := field(n, keys...); f != nil && f.Kind == yaml.ScalarNode {
		return f.Value
	}
	return ""
}

// isTest reports whether an object is only for helm test.
func isTest(top *yaml.Node) bool {
	hooks := text(top, "metadata", "annotations", "helm.sh/hook")
	isOther := func(hook string) bool { return !strings.HasPrefix(strings.TrimSpace(hook), "test") }
	return hooks != "" && !slices.ContainsFunc(strings.Split(hooks, ","), isOther)
}

// write writes all documents.
func write(all []document) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	for _, d := range all {
		d.root.Content[0].HeadComment = "" // which file a template was
		if err := encoder.Encode(d.root); err != nil {
			return nil, fmt.Errorf("write %s: %w", d.file, err)
		}
	}
	return out.Bytes(), encoder.Close()
}

// keepOnRemoval annotates all objects of a text so that they stay when what brought them goes.
func keepOnRemoval(objects []byte) ([]byte, error) {
	all, err := parse([]file{{text: objects}})
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		at := d.top()
		for _, key := range []string{"metadata", "annotations"} {
			next := field(at, key)
			if next == nil {
				next = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
				at.Content = append(at.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, next)
			}
			at = next
		}
		if field(at, "helm.sh/resource-policy") == nil {
			key := &yaml.Node{Kind: yaml.ScalarNode, Value: "helm.sh/resource-policy"}
			at.Content = append(at.Content, key, &yaml.Node{Kind: yaml.ScalarNode, Value: "keep"})
		}
	}
	return write(all)
}
