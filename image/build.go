package image

import (
	"context"
	"os"
	"slices"

	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/gobuild"
	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
)

// build is one run over the recipe.
type build struct {
	*Builder
	*session
	r       *recipe.Recipe
	l       *lock.Lock
	sources gobuild.Code // of this package
	parts   []Part

	document   []byte // the site document, checked; nil without
	version    string // of the image, see ReadRevision
	basePlaced bool   // the base of the root lies in disk.PartPath(Out) already
}

// Plan says what a build would make and why, without making it.
func (b *Builder) Plan(ctx context.Context) ([]Step, error) {
	result, err := b.run(ctx, PlanOnly)
	if err != nil {
		return nil, err
	}
	return result.Steps, nil
}

// Build makes the stick and what belongs beside it.
func (b *Builder) Build(ctx context.Context, mode Mode) (*Result, error) { return b.run(ctx, mode) }

func (b *Builder) run(ctx context.Context, mode Mode) (*Result, error) {
	run, err := b.prepare(ctx, mode)
	if err != nil {
		return nil, err
	}

	if mode != PlanOnly {
		release, err := takeTurn(ctx, b.Out, b.Progress)
		if err != nil {
			return nil, err
		}
		defer release()
	}

	result, err := run.makeParts(ctx)
	if err != nil {
		return nil, err
	}

	if mode != PlanOnly {
		if err := run.save(b.Top); err != nil {
			return nil, err
		}
	}

	result.Steps, result.Site = run.steps, b.Site
	return result, nil
}

// prepare reads all that decides about the image, and lists its parts.
func (b *Builder) prepare(ctx context.Context, mode Mode) (*build, error) {
	document, err := b.readSite()
	if err != nil {
		return nil, err
	}

	r, l, err := b.loadResolved(ctx, mode)
	if err != nil {
		return nil, err
	}

	revision, err := ReadRevision(ctx, b.Top)
	if err != nil {
		return nil, err
	}

	sources, err := b.goBuilder(l.Toolchain).ReadCode(ctx, "image")
	if err != nil {
		return nil, err
	}

	run := &build{
		Builder:  b,
		session:  &session{store: b.Store, planOnly: mode == PlanOnly, progress: b.Progress, made: Made{}},
		r:        r,
		l:        l,
		sources:  sources,
		document: document,
		version:  revision.Version(),
	}
	run.load(b.Top)
	run.parts, err = run.listParts(ctx)
	return run, err
}

// makeParts makes the parts in the order of their list.
func (b *build) makeParts(ctx context.Context) (*Result, error) {
	if !b.planOnly {
		b.announce()
	}

	last := len(b.parts) - 1
	late := 1 + slices.IndexFunc(b.parts, func(p Part) bool { return p.Kind == kindBase })
	for _, p := range b.parts[:late] {
		if err := b.makePart(ctx, p); err != nil {
			return nil, err
		}
	}

	defer func() {
		if b.basePlaced { // a build that failed, or whose programs came out the same, leaves nothing
			_ = os.Remove(disk.PartPath(b.Out))
		}
	}()

	if err := b.makeLate(ctx, b.parts[late:last]); err != nil {
		return nil, err
	}

	return b.makeStick(ctx, b.parts[last])
}
