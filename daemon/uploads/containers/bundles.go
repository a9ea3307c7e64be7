package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/bundle"
	"firstlight.dev/firstlight/assets/excerpt"
)

// claims are the bundles that archives bring, by OWNER/NAME/VERSION.
type claims struct {
	all map[string]*claim

	unread bool // of an archive it is not known what it has
}

type claim struct {
	key    artifact.Key
	bundle bundle.Bundle
	stays  bool // as it is: the registry does not answer
}

func newClaims() *claims { return &claims{all: map[string]*claim{}} }

// add claims an archive's bundle, if it has one. why is that an older archive has another bundle of that name.
func (c *claims) add(k artifact.Key, m *archiveInfo) (why string) {
	if m.bundle == nil {
		return ""
	}

	dir := k.Owner + "/" + m.bundle.Dir()
	other := c.all[dir]
	switch {
	case other == nil:
		c.all[dir] = &claim{key: k, bundle: *m.bundle}
	case other.bundle.Objects != m.bundle.Objects || !reflect.DeepEqual(other.bundle.Images, m.bundle.Images):
		return fmt.Sprintf(
			"bundle %s is that of %s, which you uploaded before; pack this one with another --version",
			m.bundle.Title(), other.key.Name,
		)
	}
	return ""
}

// conclude says of an archive's bundle what became of its images. m is nil if the archive was not read.
func (c *claims) conclude(k artifact.Key, m *archiveInfo, why string, err error) {
	if m == nil {
		c.unread = true
		return
	}
	if m.bundle == nil {
		return
	}

	if mine := c.all[k.Owner+"/"+m.bundle.Dir()]; mine != nil && mine.key == k {
		mine.stays, mine.bundle.NotServed = err != nil, excerpt.Start(why, maxWhy)
	}
}

// publishBundles makes the folder of bundles what the archives have. served are names of images that owners have.
func (p *Pusher) publishBundles(ctx context.Context, c *claims, served map[string]string) error {
	if p.Bundles == "" {
		return nil
	}

	var failed []error
	for _, dir := range slices.Sorted(maps.Keys(c.all)) {
		if mine := c.all[dir]; !mine.stays {
			failed = append(failed, p.publishBundle(ctx, dir, mine, served))
		}
	}
	if !c.unread {
		failed = append(failed, p.removeBundles(c))
	}
	return errors.Join(failed...)
}

func (p *Pusher) publishBundle(ctx context.Context, dir string, c *claim, served map[string]string) error {
	fail := func(err error) error { return fmt.Errorf("publish bundle %s: %w", dir, err) }
	b := c.bundle
	for _, i := range b.Images {
		if !i.Absent {
			continue
		}
		has, err := p.hasImage(ctx, c.key.Owner, i.Name, served)
		if err != nil {
			return fail(err)
		}
		if !has {
			b.Missing = append(b.Missing, i.Asked)
		}
	}

	text, err := json.MarshalIndent(b, "", " ")
	if err != nil {
		return fail(err)
	}
	folder := filepath.Join(p.Bundles, dir)
	description, objects := filepath.Join(folder, bundle.DescriptionFile), filepath.Join(folder, b.ObjectsFile())
	_, unwritten := os.Stat(objects)
	if have, err := os.ReadFile(description); err == nil && unwritten == nil && string(have) == string(text) {
		return nil
	}

	if unwritten != nil {
		if err := p.writeObjects(ctx, c.key, objects); err != nil {
			return fail(err)
		}
	}
	if err := atomicfile.Write(description, text, 0o644); err != nil {
		return fail(err)
	}
	return removeOthers(folder, description, objects)
}

// writeObjects writes the objects of an archive's bundle.
func (p *Pusher) writeObjects(ctx context.Context, k artifact.Key, file string) error {
	all, err := open(ctx, p.path(k))
	if err != nil {
		return err
	}
	if all.bundle == nil {
		return fmt.Errorf("archive %s has no bundle any more", k.Name)
	}
	text, err := all.bundle.objects()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(file, text, 0o644)
}

// hasImage reports whether nodes of an owner's clusters can pull an image: the owner has it, or the stick.
func (p *Pusher) hasImage(ctx context.Context, owner, full string, served map[string]string) (bool, error) {
	if _, is := served[artifact.ServedImage(owner, full)]; is {
		return true, nil
	}

	for _, repository := range []string{artifact.ServedImage(owner, full), strings.TrimPrefix(full, assets.ImageDomain+"/")} {
		ref, err := parseServed(p.Registry, repository)
		if err != nil {
			return false, nil // the registry can have none of such a name
		}
		_, err = remote.Head(ref, remote.WithTransport(p.Transport), remote.WithContext(ctx))
		var e *transport.Error
		switch {
		case err == nil:
			return true, nil
		case errors.As(err, &e) && e.StatusCode == http.StatusNotFound:
		default:
			return false, fmt.Errorf("ask registry for %s: %w", full, err)
		}
	}
	return false, nil
}

// parseServed is a name in the appliance's registry. Of one with tag and digest the digest counts.
func parseServed(host, repository string) (name.Reference, error) {
	n, err := reference.ParseNamed(host + "/" + repository)
	if err != nil {
		return nil, err
	}
	if d, is := n.(reference.Digested); is {
		return name.NewDigest(n.Name() + "@" + d.Digest().String())
	}
	return name.NewTag(n.String())
}

// removeBundles removes the bundles that no archive brings.
func (p *Pusher) removeBundles(c *claims) error {
	found, err := filepath.Glob(filepath.Join(p.Bundles, "*", "*", "*"))
	if err != nil {
		return fmt.Errorf("list bundles: %w", err)
	}

	var failed []error
	for _, folder := range found {
		dir, err := filepath.Rel(p.Bundles, folder)
		if err != nil || c.all[dir] != nil {
			continue
		}
		if err := os.RemoveAll(folder); err != nil {
			failed = append(failed, fmt.Errorf("remove bundle %s: %w", dir, err))
		}
		for range 2 { // of its name, and of its owner
			folder = filepath.Dir(folder)
			_ = os.Remove(folder) // unless it holds something
		}
	}
	return errors.Join(failed...)
}

// removeOthers removes what is in a folder besides these files.
func removeOthers(folder string, files ...string) error {
	all, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range all {
		name := filepath.Join(folder, e.Name())
		if slices.Contains(files, name) {
			continue
		}
		if err := os.RemoveAll(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
