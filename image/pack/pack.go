// Package pack makes one OCI archive of a Helm chart, a kustomization or manifests, with every image that they name:
// rendered here, so that the appliance and its clusters need neither Helm nor a network; images for linux/amd64, each
// named by its digest. Equal inputs give equal bytes. docs/addons.md walks through it.
package pack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/bundle"
)

// Options is what is packed, and how.
type Options struct {
	Source string // a chart's folder or archive, a kustomization's folder, or a folder or file of manifests

	Name, Version, Namespace string // "": those of the chart; the namespace is the name

	ValueFiles  []string // of a chart, the last one wins
	Values      []string // KEY=VALUE, as helm's --set
	APIVersions []string // that the cluster has besides Kubernetes' own, GROUP/VERSION

	Archives []string // with images: docker save's, OCI archives, OCI layouts
	Images   []string // more images than the objects name
	Absent   []string // images that another archive brings
}

// Pack writes the archive.
func Pack(ctx context.Context, o Options, w io.Writer) (bundle.Bundle, error) {
	s, err := render(o)
	if err != nil {
		return bundle.Bundle{}, err
	}
	b := bundle.Bundle{Name: s.name, Version: s.version, Namespace: s.namespace}
	if err := b.Check(); err != nil {
		return bundle.Bundle{}, err
	}

	documents, err := parse(s.files)
	if err != nil {
		return bundle.Bundle{}, err
	}
	if len(documents) == 0 {
		return bundle.Bundle{}, fmt.Errorf("%s has no objects", o.Source)
	}

	images, close, err := resolve(ctx, o, findReferences(documents))
	if err != nil {
		return bundle.Bundle{}, err
	}
	defer close()

	objects, err := write(documents)
	if err != nil {
		return bundle.Bundle{}, err
	}
	if len(objects) > bundle.MaxObjects {
		return bundle.Bundle{}, fmt.Errorf("the objects have %d bytes, more than %d", len(objects), bundle.MaxObjects)
	}

	for _, i := range images {
		b.Images = append(b.Images, i.Image)
	}
	bill, err := writeBill(b, objects)
	if err != nil {
		return bundle.Bundle{}, err
	}
	return b, writeArchive(w, b, objects, bill, images)
}

// file is a text with objects, by the name under which people know it.
type file struct {
	name string
	text []byte
}

// source is what was rendered.
type source struct {
	name, version, namespace string
	files                    []file
}

// setDefaults fills in what the options leave open.
func (s *source) setDefaults(o Options) {
	for _, d := range []struct {
		to   *string
		from string
	}{{&s.name, o.Name}, {&s.version, o.Version}, {&s.namespace, o.Namespace}} {
		if d.from != "" {
			*d.to = d.from
		}
	}
	if s.namespace == "" {
		s.namespace = s.name
	}
}

// sortFiles orders files by their names.
func sortFiles(files []file) []file {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return slices.DeleteFunc(files, func(f file) bool { return len(bytes.TrimSpace(f.text)) == 0 })
}
