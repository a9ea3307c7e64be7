package site

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Change is what became of a part of a site.
type Change string

// The changes of a part.
const (
	Added   Change = "added"
	Removed Change = "removed"
	Changed Change = "changed"
)

// Difference is one part of a site that is another one in a second site.
type Difference struct {
	Section string // "nodes", "clusters", or another key of the document
	Name    string // of the node or the cluster; "" for other sections
	Change  Change
	Keys    []string // below it, of what is added, removed or changed: bmc.password; none if all of it is
}

// Compare returns what differs from one site to another, with the defaults of both filled in, in the order of the
// document: in nodes and clusters each by its name. Values are left out, so no secret is in it.
func Compare(from, to *Site) []Difference {
	before, after := sectionsOf(from), sectionsOf(to)
	var all []Difference
	isDone := map[part]bool{}
	for _, key := range slices.Concat(before.order, after.order) {
		if isDone[key] {
			continue
		}
		isDone[key] = true

		old, isOld := before.values[key]
		new, isNew := after.values[key]
		d := Difference{Section: key.section, Name: key.name, Change: Changed}
		switch {
		case !isNew:
			d.Change = Removed
		case !isOld:
			d.Change = Added
		default:
			d.Keys = differentKeys(old, new)
			if len(d.Keys) == 0 {
				continue
			}
			d.Keys = slices.DeleteFunc(d.Keys, func(key string) bool { return key == "" }) // it is one value
		}
		all = append(all, d)
	}

	rank := map[string]int{}
	for i := range reflect.TypeFor[Site]().NumField() {
		rank[reflect.TypeFor[Site]().Field(i).Tag.Get("yaml")] = i
	}
	slices.SortStableFunc(all, func(a, b Difference) int { return rank[a.Section] - rank[b.Section] })
	return all
}

// part names a section of a document, or one element of nodes and clusters.
type part struct{ section, name string }

// sections are the parts of a document in their order, each as its values by their paths.
type sections struct {
	order  []part
	values map[part]map[string]string
}

func sectionsOf(s *Site) sections {
	all := sections{values: map[part]map[string]string{}}
	add := func(p part, n *yaml.Node) {
		values := map[string]string{}
		flatten(n, "", values)
		all.order = append(all.order, p)
		all.values[p] = values
	}

	doc := yamlNode(reflect.ValueOf(s.WithDefaults()).Elem(), Secret.Reveal)
	for i := 0; i+1 < len(doc.Content); i += 2 {
		section, n := doc.Content[i].Value, doc.Content[i+1]
		if section != "nodes" && section != "clusters" {
			add(part{section: section}, n)
			continue
		}
		for at, element := range n.Content {
			add(part{section, elementName(element, at)}, element)
		}
	}
	return all
}

// flatten gives the scalars of a node their paths: links[0].mac.
func flatten(n *yaml.Node, path string, values map[string]string) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			flatten(n.Content[i+1], strings.TrimPrefix(path+"."+n.Content[i].Value, "."), values)
		}
	case yaml.SequenceNode:
		for i, c := range n.Content {
			flatten(c, path+"["+strings.TrimPrefix(elementName(c, i), "#")+"]", values)
		}
	default:
		values[path] = n.Value
	}
}

// differentKeys are the keys of the values that are not the same in both.
func differentKeys(a, b map[string]string) []string {
	keys := map[string]bool{}
	for _, all := range []map[string]string{a, b} {
		for key := range all {
			old, isOld := a[key]
			new, isNew := b[key]
			if isOld != isNew || old != new {
				keys[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// NewConsents are the nodes that a site consents to lose the data of and another one does not, not in the same words, or
// not of the same server and disk; and discovered machines, if nodeDefaults says so for them.
func NewConsents(from, to *Site) (names []string) {
	before := map[Name]Node{}
	for _, n := range from.WithDefaults().Nodes {
		before[n.Name] = n
	}

	for _, n := range to.WithDefaults().Nodes {
		was := before[n.Name]
		if n.Overwrite.IsGranted() && (n.Overwrite != was.Overwrite || !isSameDisk(n, was)) {
			names = append(names, string(n.Name))
		}
	}

	isNew := from.Discover == nil || to.NodeDefaults.Overwrite != from.NodeDefaults.Overwrite
	if to.Discover != nil && to.NodeDefaults.Overwrite.IsGranted() && isNew {
		names = append(names, "machines that are discovered")
	}
	return names
}

// isSameDisk reports whether two nodes are one server, installed on one disk.
func isSameDisk(a, b Node) bool {
	var addresses [2]BMCAddress
	for i, n := range []Node{a, b} {
		if n.BMC != nil {
			addresses[i] = n.BMC.Address
		}
	}
	return slices.Equal(a.MACs, b.MACs) && a.BootMAC == b.BootMAC && addresses[0] == addresses[1] &&
		reflect.DeepEqual(a.RootDevice, b.RootDevice)
}
