package image

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/gobuild"
	"firstlight.dev/firstlight/image/lock"
	"firstlight.dev/firstlight/image/recipe"
)

// programs are those programs of the recipe that wanted says yes to. What compiles them is left out of their key:
// that ends in a version of its own (gobuild.Builder.Key), and relinking them all takes minutes.
func (l *list) programs(wanted func(name string) bool) (parts []Part) {
	for i := range l.r.Programs {
		p := &l.r.Programs[i]
		if !wanted(p.Name) {
			continue
		}

		key, err := l.goBuilder(l.l.Toolchain).Key(p)
		l.keep(err)
		parts = append(parts, Part{
			Kind:   kindProgram,
			Name:   p.Name,
			Inputs: Inputs{"its sources": key},
			Make:   func(ctx context.Context, _ Made, out string) error { return l.compile(ctx, p, out) },
		})
	}
	return parts
}

func (b *build) compile(ctx context.Context, p *recipe.Program, out string) error {
	title := titleOf(kindProgram, p.Name)
	next, builder := b.nextProgram(title), b.goBuilder(b.l.Toolchain)
	builder.Report = func(s gobuild.State) { b.progress.Advance(title, compilePosition(s, next)) }
	return builder.Build(ctx, p, out)
}

// nextProgram is the one, if any, that is compiled as soon as the one of this title is there.
func (b *build) nextProgram(title string) []string {
	i := slices.IndexFunc(b.parts, func(p Part) bool { return p.Title() == title })
	for _, p := range b.parts[i+1:] {
		if p.Kind != kindProgram {
			break
		}
		if !b.isCached(p) {
			return []string{p.Name}
		}
	}
	return nil
}

// compilePosition says how far a program is; next are the programs after it.
func compilePosition(s gobuild.State, next []string) Position {
	switch {
	case s.Linking:
		return Position{Doing: "linking", Next: next}
	case s.Done > 0 && s.All == 0:
		return Position{Doing: "compiling", Next: append([]string{"linking"}, next...)}
	case s.Done > 0:
		return Position{Done: s.Done, All: s.All, Next: append([]string{"linking"}, next...)}
	case s.Fetched > 0:
		return Position{
			Doing: fmt.Sprintf("%d Go modules fetched", s.Fetched),
			Next:  append([]string{"compiling", "linking"}, next...),
		}
	}
	return Position{Doing: "reading sources", Next: append([]string{"compiling", "linking"}, next...)}
}

// announce says before the first build from this directory that comes to its end what is not in the
// cache, and how long it takes. Programs with a go.mod of their own are from elsewhere, and large.
func (b *build) announce() {
	if len(b.last) > 0 {
		return
	}

	var missing []string
	for _, p := range b.parts {
		if p.Kind == kindProgram && b.r.Program(p.Name).Module != "" && !b.isCached(p) {
			missing = append(missing, p.Name)
		}
	}

	if len(missing) > 0 {
		b.progress.Log(firstRun(missing, runtime.GOMAXPROCS(0)))
	}
}

// firstRun says how long a first build takes. It was 20 minutes with two processors, and most of it
// is compiling, which uses as many as there are.
func firstRun(missing []string, processors int) string {
	const step = 5
	minutes := step * ((2*20 + step*processors - 1) / (step * processors))
	names, more := missing, ""
	if len(missing) > 4 {
		names, more = missing[:3], fmt.Sprintf(" and %d more", len(missing)-3)
	}

	on := "one processor"
	if processors > 1 {
		on = fmt.Sprintf("%d processors", processors)
	}

	return fmt.Sprintf("first run: not in the cache: %s%s; a first run takes about %d minutes on %s; "+
		"interrupted, it continues where it was", strings.Join(names, ", "), more, minutes, on)
}

// Compile compiles a program of the recipe to out as the image has it, with the lock's toolchain.
func (b *Builder) Compile(ctx context.Context, name, out string) error {
	r, err := recipe.ReadFile(b.path(RecipePath))
	if err != nil {
		return err
	}
	p := r.Program(name)
	if p == nil {
		return fmt.Errorf("compile %s: %s has no such program", name, RecipePath)
	}
	l, err := lock.ReadFile(b.path(LockPath))
	if err != nil {
		return err
	}
	return b.goBuilder(l.Toolchain).Build(ctx, p, out)
}
