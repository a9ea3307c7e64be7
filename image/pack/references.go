package pack

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"go.yaml.in/yaml/v3"
)

// imageReference is a place where an object names an image.
type imageReference struct {
	file        string
	node        *yaml.Node
	inContainer bool // where Kubernetes itself takes a name of an image, and nothing else
}

// where names the place as an editor opens it.
func (r imageReference) where() string { return fmt.Sprintf("%s:%d", r.file, r.node.Line) }

// findReferences finds every field "image" that may be a name of one, in whatever object: custom resources name images
// too. Definitions of kinds only describe such fields.
func findReferences(all []document) (found []imageReference) {
	for _, d := range all {
		if text(d.top(), "kind") == "CustomResourceDefinition" {
			continue
		}
		seen := map[*yaml.Node]bool{}
		var walk func(n *yaml.Node, inContainer bool)
		walk = func(n *yaml.Node, inContainer bool) {
			if n == nil || seen[n] {
				return
			}
			seen[n] = true
			if n.Kind == yaml.AliasNode {
				walk(n.Alias, inContainer)
				return
			}
			if n.Kind != yaml.MappingNode {
				for _, c := range n.Content {
					walk(c, inContainer)
				}
				return
			}
			for i := 0; i+1 < len(n.Content); i += 2 {
				key, value := n.Content[i].Value, imageNode(n.Content[i+1])
				if key != "image" || value == nil {
					walk(n.Content[i+1], strings.HasSuffix(strings.ToLower(key), "containers"))
				} else if !seen[value] {
					seen[value] = true
					found = append(found, imageReference{d.file, value, inContainer})
				}
			}
		}
		walk(d.root, false)
	}
	return found
}

// imageNode is the text of a field "image"; nil if it has none. A volume's has its name in "reference".
func imageNode(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if r := field(n, "reference"); r != nil {
		n = r
	}
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || n.Value == "" {
		return nil
	}
	return n
}

// parseName completes a name as containerd does; what has a digest keeps its tag.
func parseName(text string) (reference.Named, error) {
	r, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return nil, fmt.Errorf("%q is no name of an image: %w", text, err)
	}
	return reference.TagNameOnly(r), nil
}
