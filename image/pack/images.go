package pack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"firstlight.dev/firstlight/assets/bundle"
)

// platform is that of the nodes.
var platform = v1.Platform{OS: "linux", Architecture: "amd64"}

// packedImage is an image with its content; nil if another archive brings it.
type packedImage struct {
	bundle.Image
	content v1.Image
}

// resolve finds the image of every reference and writes its digest there. All that cannot be found are told at once.
// What it returns is read until close is called.
func resolve(ctx context.Context, o Options, all []imageReference) (images []packedImage, close func(), err error) {
	store, err := openArchives(o.Archives)
	if err != nil {
		return nil, nil, err
	}

	r := &resolver{ctx: ctx, store: store, absent: map[string]bool{}, known: map[string]packedImage{}}
	for _, text := range o.Absent {
		n, err := parseName(text)
		if err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
		r.absent[n.String()] = true
	}

	var failed []error
	for _, at := range all {
		if err := r.pin(at); err != nil {
			failed = append(failed, fmt.Errorf("%s: image %s: %w", at.where(), at.node.Value, err))
		}
	}
	for _, text := range o.Images {
		if err := r.add(text); err != nil {
			failed = append(failed, fmt.Errorf("--image %s: %w", text, err))
		}
	}
	for text := range r.absent {
		if !r.isUsed(text) {
			failed = append(failed, fmt.Errorf("--absent %s: no object names it", text))
		}
	}
	if len(failed) > 0 {
		return nil, nil, errors.Join(append(failed, store.Close())...)
	}

	for _, i := range r.known {
		images = append(images, i)
	}
	slices.SortFunc(images, func(a, b packedImage) int { return strings.Compare(a.Asked+" "+a.Tag, b.Asked+" "+b.Tag) })
	return images, func() { _ = store.Close() }, nil
}

// resolver finds each image once.
type resolver struct {
	ctx    context.Context
	store  *archives
	absent map[string]bool
	known  map[string]packedImage // by whole name
}

func (r *resolver) isUsed(name string) bool { return r.known[name].Absent }

// pin gives a reference the name with the digest.
func (r *resolver) pin(at imageReference) error {
	n, err := parseName(at.node.Value)
	if err != nil {
		if at.inContainer {
			return err
		}
		return nil // of a custom resource: then the field means something else
	}

	i, err := r.find(n)
	if err != nil {
		return err
	}
	at.node.Value = i.Name
	return nil
}

// add finds an image that no object names: programs are told of it by an argument or a variable, so it keeps its name.
func (r *resolver) add(text string) error {
	n, err := parseName(text)
	if err != nil {
		return err
	}
	if _, is := n.(reference.Digested); is || strings.Contains(reference.Domain(n), ":") {
		return errors.New("give it a name with a tag, and without a port: it is served under that name")
	}

	i, err := r.find(n)
	if err != nil {
		return err
	}
	i.Name, i.Tag = n.String(), n.String()
	r.known[n.String()+" by name"] = i
	return nil
}

func (r *resolver) find(n reference.Named) (packedImage, error) {
	if i, is := r.known[n.String()]; is {
		return i, nil
	}

	i := packedImage{Image: bundle.Image{Asked: n.String(), Name: n.String(), Absent: r.absent[n.String()]}}
	if !i.Absent {
		content, err := r.fetch(n)
		if err != nil {
			return i, err
		}
		digest, err := content.Digest()
		if err != nil {
			return i, err
		}
		i.content, i.Digest = content, digest.String()
		i.Name, i.Tag = bundle.Pin(n, i.Digest)
	}

	r.known[n.String()] = i
	return i, nil
}

// fetch finds an image in the archives, then in its registry.
func (r *resolver) fetch(n reference.Named) (v1.Image, error) {
	image, err := r.store.find(n)
	if err != nil || image != nil {
		return image, err
	}

	text := n.String()
	if d, is := n.(reference.Digested); is {
		text = n.Name() + "@" + d.Digest().String() // go-containerregistry takes a tag or a digest
	}
	ref, err := name.ParseReference(text)
	if err != nil {
		return nil, err
	}
	image, err = remote.Image(
		ref, remote.WithContext(r.ctx), remote.WithPlatform(platform), remote.WithAuthFromKeychain(authn.DefaultKeychain),
	)
	if err != nil {
		return nil, fmt.Errorf("it is in none of the archives (--from), and unavailable from its registry: %w", err)
	}
	return image, checkPlatform(image)
}

func checkPlatform(image v1.Image) error {
	c, err := image.ConfigFile()
	if err != nil {
		return err
	}
	if c.OS != platform.OS || c.Architecture != platform.Architecture {
		return fmt.Errorf("it is for %s/%s; the nodes are %s", c.OS, c.Architecture, platform)
	}
	return nil
}
