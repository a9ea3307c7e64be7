package image

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/cache"
)

// Part is one part of the image. All that decides about its bytes is in Inputs and in the parts that it needs.
type Part struct {
	Kind   string   // such as "packages"; the directory of the cache that it is kept in
	Name   string   // such as "appliance"; may be empty
	Needs  []string // titles of parts that stand before it in the list; their digests are inputs too
	Inputs Inputs

	// Make writes the part, a file or a directory, to out.
	Make func(ctx context.Context, from Made, out string) error

	// File is the part itself where that is a file of this machine already, which is neither made nor kept.
	File string
}

// Kinds of parts.
const (
	kindProgram  = "program"
	kindUnpacked = "unpacked"
	kindPackages = "packages"
	kindFiles    = "package files"
	kindFirmware = "firmware"
	kindPulled   = "registry image"
	kindLayer    = "layer"
	kindArtifact = "artifact"
	kindKernel   = "kernel and initramfs"
	kindBase     = "root file system"
	kindStick    = "stick"
)

func titleOf(kind, name string) string { return strings.TrimSpace(kind + " " + name) }

// Title names a part for people, and in Needs.
func (p Part) Title() string { return titleOf(p.Kind, p.Name) }

// dir is the directory of the cache that the part is kept in.
func (p Part) dir() string { return strings.ReplaceAll(p.Kind, " ", "-") }

// Inputs are what a part is made from: a readable name and a digest of each.
type Inputs map[string]string

// add adds what others are made from as well.
func (in Inputs) add(more Inputs) Inputs {
	maps.Copy(in, more)
	return in
}

func (in Inputs) key(kind, name string) string {
	parts := []string{kind, name}
	for _, input := range slices.Sorted(maps.Keys(in)) {
		parts = append(parts, input, in[input])
	}
	return cache.Key(parts...)
}

// Made is what the needs of a part became, by title.
type Made map[string]cache.Item

// path is where a part lies. That a part uses another that it does not need is a mistake in the list.
func (m Made) path(title string) string {
	item, ok := m[title]
	if !ok {
		panic("a part uses " + title + ", which it does not need")
	}
	return item.Path
}

// complete returns all inputs of a part, and what its needs became.
func (b *build) complete(p Part) (Inputs, Made, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in, from := Inputs{}.add(p.Inputs), Made{}
	for _, need := range p.Needs {
		item, ok := b.made[need]
		if !ok {
			return nil, nil, fmt.Errorf("make %s: it needs %s, which no part before it is", p.Title(), need)
		}
		in[need], from[need] = item.Digest, item
	}

	return in, from, nil
}

// isCached reports whether a part that needs no other is in the cache.
func (b *build) isCached(p Part) bool {
	_, ok := b.store.Lookup(p.dir(), p.Inputs.key(p.Kind, p.Name))
	return ok
}

// makePart makes one part, unless the cache has one of these inputs.
func (b *build) makePart(ctx context.Context, p Part) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	item, err := b.findOrMake(ctx, p)
	if err != nil {
		return err
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.made[p.Title()] = item
	return nil
}

func (b *build) findOrMake(ctx context.Context, p Part) (cache.Item, error) {
	if p.File != "" {
		digest, err := cache.FileDigest(p.File)
		return cache.Item{Path: p.File, Digest: digest}, err
	}

	in, from, err := b.complete(p)
	if err != nil {
		return cache.Item{}, err
	}

	key := in.key(p.Kind, p.Name)
	if !slices.Contains(slices.Collect(maps.Values(in)), pending) {
		if item, ok := b.store.Lookup(p.dir(), key); ok {
			b.recordStep(in, Step{Part: p.Title(), Action: "kept"})
			return item, nil
		}
	}

	if b.planOnly {
		b.recordStep(in, Step{Part: p.Title(), Action: "build", Why: b.changedInputs(p.Title(), in)})
		return cache.Item{Digest: pending}, nil
	}

	var item cache.Item
	err = b.runPart(p.Title(), in, func() (err error) {
		item, err = b.store.Do(p.dir(), key, func(out string) error { return p.Make(ctx, from, out) })
		return err
	})
	return item, err
}
