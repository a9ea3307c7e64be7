package features

import (
	"maps"
	"slices"
	"strings"
)

// Annotation names on a Node the labels that were written by this program, commas between, without Prefix: what is on the
// list and no longer found is taken away (NFD, "Annotations").
const Annotation = "nfd.node.kubernetes.io/feature-labels"

// Metadata is what of a Node's metadata is read and written. In a merge patch (RFC 7386) nil takes a key away.
type Metadata struct {
	Labels      map[string]*string `json:"labels,omitempty"`
	Annotations map[string]*string `json:"annotations,omitempty"`
}

// Patch returns what has to change on a node that has labels and annotations for it to have those that were found, by
// names as Labels and Local give them; false: nothing. It takes away only what Annotation names. Values that are no
// values of labels are left out.
func Patch(labels, annotations, found map[string]string) (Metadata, bool) {
	p := Metadata{Labels: map[string]*string{}, Annotations: map[string]*string{}}
	wanted := map[string]string{}
	for name, value := range found {
		if isLabel(name, value) {
			wanted[withPrefix(name)] = value
		}
	}

	for name, value := range wanted {
		if is, ok := labels[name]; !ok || is != value {
			p.Labels[name] = &value
		}
	}
	for name := range strings.SplitSeq(annotations[Annotation], ",") {
		key := withPrefix(name)
		if _, keep := wanted[key]; name != "" && !keep {
			if _, there := labels[key]; there {
				p.Labels[key] = nil
			}
		}
	}

	list := list(wanted)
	is, there := annotations[Annotation]
	switch {
	case list == "" && there:
		p.Annotations[Annotation] = nil
	case list != is:
		p.Annotations[Annotation] = &list
	}

	return p, len(p.Labels)+len(p.Annotations) > 0
}

// list is the value of Annotation for labels.
func list(labels map[string]string) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
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
