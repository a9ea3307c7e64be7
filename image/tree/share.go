package tree

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// fileIdentity is what two files must have in common to be one, besides their content.
type fileIdentity struct {
	size, perm, time int64
	uid, gid         int
	xattrs           string
}

func likenessOf(n *Node) fileIdentity {
	var xattrs strings.Builder
	for _, name := range slices.Sorted(maps.Keys(n.Xattrs)) {
		fmt.Fprintf(&xattrs, "%q=%q ", name, n.Xattrs[name])
	}
	return fileIdentity{n.Content.Size(), n.Perm, n.Time, n.UID, n.GID, xattrs.String()}
}

// LinkDuplicates makes each file below dir a hard link to a file that is equal to it, owner, mode and time
// included, wherever in the tree that is: it is stored once, and read once by whoever runs it.
// Empty files stay apart.
func (t *Tree) LinkDuplicates(dir string) error {
	below := cleanPath(dir) + "/"
	alike := map[fileIdentity][]*Node{}
	known := map[*Node]bool{}
	var names []string
	for _, p := range slices.Sorted(maps.Keys(t.nodes)) {
		n := t.nodes[p]
		if n.Type != File || n.Content == nil || n.Content.Size() == 0 {
			continue
		}
		if strings.HasPrefix(p, below) {
			names = append(names, p)
		} else if l := likenessOf(n); !known[n] {
			known[n], alike[l] = true, append(alike[l], n)
		}
	}

	digests := map[*Node]string{}
	for _, p := range names {
		n := t.nodes[p]
		if known[n] {
			continue
		}

		l := likenessOf(n)
		same, err := equal(n, alike[l], digests)
		if err != nil {
			return fmt.Errorf("compare /%s: %w", p, err)
		}
		if same != nil {
			t.nodes[p] = same
			continue
		}

		known[n], alike[l] = true, append(alike[l], n)
	}

	return nil
}

// equal finds the node among others with n's content.
func equal(n *Node, others []*Node, digests map[*Node]string) (*Node, error) {
	for _, other := range others {
		for _, each := range []*Node{n, other} {
			if digests[each] != "" {
				continue
			}

			sum, err := digestOf(each.Content)
			if err != nil {
				return nil, err
			}

			digests[each] = sum
		}
		if digests[n] == digests[other] {
			return other, nil
		}
	}
	return nil, nil
}

func digestOf(c Content) (string, error) {
	r, err := c.Open()
	if err != nil {
		return "", err
	}
	defer r.Close()

	h := sha256.New()
	_, err = io.Copy(h, r)
	return string(h.Sum(nil)), err
}
