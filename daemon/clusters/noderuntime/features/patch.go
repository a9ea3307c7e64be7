package features

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Annotations of a Node that name what was written by this program, commas between, without Prefix: what is on a list and no
// longer found is taken away (NFD, "Annotations").
const (
	Annotation            = "nfd.node.kubernetes.io/feature-labels"
	annotationAnnotations = "nfd.node.kubernetes.io/feature-annotations"
	annotationResources   = "nfd.node.kubernetes.io/extended-resources"
)

// maxAnnotation is the size of an annotation's value, in bytes, as in NFD.
const maxAnnotation = 1 << 10

// Node is what of a Node is read.
type Node struct {
	Labels, Annotations, Capacity map[string]string
}

// Change is what is written to a Node. In a merge patch (RFC 7386) nil takes a key away.
type Change struct {
	Metadata Metadata
	Capacity map[string]*string // of its status
}

// Metadata is the part of a Change that is not of a status.
type Metadata struct {
	Labels      map[string]*string `json:"labels,omitempty"`
	Annotations map[string]*string `json:"annotations,omitempty"`
}

// IsEmpty reports whether there is nothing to write.
func (m Metadata) IsEmpty() bool { return len(m.Labels)+len(m.Annotations) == 0 }

// Patch returns what has to change on a node for it to have what was found, by names as Labels, Local and Apply give them.
// It takes away only what the lists name. What Kubernetes would refuse is left out.
func Patch(n Node, found Given) Change {
	c := Change{Metadata: Metadata{Annotations: map[string]*string{}}}
	update := func(is, wanted map[string]string, list string) map[string]*string {
		change := compare(is, n.Annotations[list], wanted)
		names, had := listNames(wanted), n.Annotations[list]
		switch _, there := n.Annotations[list]; {
		case names == "" && there:
			c.Metadata.Annotations[list] = nil
		case names != had:
			c.Metadata.Annotations[list] = &names
		}
		return change
	}

	c.Metadata.Labels = update(n.Labels, keep(found.Labels, isLabel), Annotation)
	c.Capacity = update(n.Capacity, keep(found.Resources, isResource), annotationResources)
	maps.Copy(c.Metadata.Annotations, update(n.Annotations, keep(found.Annotations, isAnnotation), annotationAnnotations))
	return c
}

// keep returns what may be written, by whole names.
func keep(found map[string]string, fits func(name, value string) bool) map[string]string {
	wanted := map[string]string{}
	for name, value := range found {
		if fits(name, value) {
			wanted[withPrefix(name)] = value
		}
	}
	return wanted
}

func isResource(name, value string) bool {
	n, err := strconv.ParseUint(value, 10, 31)
	return isLabel(name, "") && err == nil && n > 0
}

func isAnnotation(name, value string) bool {
	return isLabel(name, "") && len(value) <= maxAnnotation
}

// compare returns what makes a node's values those wanted. Of others it takes away those that are listed.
func compare(is map[string]string, listed string, wanted map[string]string) map[string]*string {
	change := map[string]*string{}
	for name, value := range wanted {
		if has, ok := is[name]; !ok || has != value {
			change[name] = &value
		}
	}
	for name := range strings.SplitSeq(listed, ",") {
		key := withPrefix(name)
		_, isWanted := wanted[key]
		if _, isThere := is[key]; name != "" && isThere && !isWanted {
			change[key] = nil
		}
	}
	return change
}

// listNames is the value of an annotation that lists.
func listNames(wanted map[string]string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		names = append(names, strings.TrimPrefix(name, Prefix))
	}
	return strings.Join(names, ",")
}

func withPrefix(name string) string {
	if strings.Contains(name, "/") {
		return name
	}
	return Prefix + name
}
