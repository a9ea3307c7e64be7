// Package bundle is what `firstlight pack` and the appliance agree on: a chart, a kustomization or manifests, with all
// the images that they name, in one OCI archive. In its index a bundle is a manifest of the type ArtifactType: the
// configuration is a Bundle, the first layer the objects, the second the bill of materials. The images are there under
// tags made of their digests, so that two bundles never disagree about what a name means.
package bundle

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/distribution/reference"

	"firstlight.dev/firstlight/assets"
)

// Media types (OCI image-spec, "Guidelines for Artifact Usage").
const (
	ArtifactType = "application/vnd.firstlight.bundle.v1+json"
	ObjectsType  = "application/yaml"
	BillType     = "application/spdx+json"
)

// DescriptionFile is the file of a bundle on the appliance that says all of it but its objects, in a folder
// OWNER/NAME/VERSION. It is written last, and whole.
const DescriptionFile = "bundle.json"

// MaxObjects bounds the objects of a bundle, in bytes of YAML; MaxDescription what is said of it.
const (
	MaxObjects     = 16 << 20
	MaxDescription = 1 << 20
)

// Bundle is what is said of a bundle.
type Bundle struct {
	Name      string  `json:"name"`
	Version   string  `json:"version"`
	Namespace string  `json:"namespace"` // of objects that name none
	Images    []Image `json:"images,omitempty"`

	// What the appliance adds.
	Objects   string   `json:"objects,omitempty"`   // digest of the objects: sha256:…
	Missing   []string `json:"missing,omitempty"`   // images that another archive brings and none has yet
	NotServed string   `json:"notServed,omitempty"` // why no node can pull its images, a sentence
}

// Image is an image that the objects name.
type Image struct {
	Asked  string `json:"asked"`            // as the source names it
	Name   string `json:"name"`             // as the objects name it
	Tag    string `json:"tag,omitempty"`    // under which it is in the archive
	Digest string `json:"digest,omitempty"` // of its manifest for linux/amd64
	Absent bool   `json:"absent,omitempty"` // another archive brings it
}

var (
	names    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	versions = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$`)
)

// Check says in a sentence what is wrong with the names; nil if nothing is.
func (b Bundle) Check() error {
	switch {
	case !names.MatchString(b.Name):
		return fmt.Errorf("bundle name %q is not a DNS label: up to 63 of a-z, 0-9 and '-'", b.Name)
	case !versions.MatchString(b.Version):
		return fmt.Errorf(
			"bundle version %q is not allowed; use up to 63 of letters, digits, '.', '_', '+' and '-', beginning with a letter or digit",
			b.Version,
		)
	case !names.MatchString(b.Namespace):
		return fmt.Errorf("bundle namespace %q is not a DNS label: up to 63 of a-z, 0-9 and '-'", b.Namespace)
	}
	return nil
}

// Title names a bundle to people.
func (b Bundle) Title() string { return b.Name + " " + b.Version }

// Dir is the folder of a bundle among those of its owner.
func (b Bundle) Dir() string { return b.Name + "/" + b.Version }

// ObjectsFile is the file next to DescriptionFile that has the objects. Its name is their digest, so that a bundle that
// takes the place of another one never has the other's objects.
func (b Bundle) ObjectsFile() string { return strings.TrimPrefix(b.Objects, "sha256:") + ".yaml" }

// Pin is how objects name an image of a digest, and the tag under which the archive has it. A registry with a port
// cannot be served by another one: its port becomes part of a name below ownDomain.
func Pin(r reference.Named, digest string) (name, tag string) {
	repository := reference.Domain(r) + "/" + reference.Path(r)
	if host, port, has := strings.Cut(reference.Domain(r), ":"); has {
		repository = host + "-" + port + "." + assets.ImageDomain + "/" + reference.Path(r)
	}

	name = repository
	if t, is := r.(reference.Tagged); is {
		name += ":" + t.Tag()
	}
	return name + "@" + digest, repository + ":" + strings.Replace(digest, ":", "-", 1)
}
