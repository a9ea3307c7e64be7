package image

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/gobuild"
	"firstlight.dev/firstlight/image/recipe"
)

const kindProgram = "program"

func programInputs(key string) Inputs { return Inputs{"its sources": key} }

// buildPrograms compiles those programs of the recipe that wanted says yes to.
func (b *build) buildPrograms(ctx context.Context, wanted func(name string) bool) error {
	builder := b.goBuilder(b.l.Toolchain)
	for i := range b.r.Programs {
		p := &b.r.Programs[i]
		if !wanted(p.Name) {
			continue
		}
		key, err := builder.Key(p)
		if err != nil {
			return err
		}
		item, err := b.makePart(ctx, kindProgram, p.Name, programInputs(key), func(out string) error {
			var next []string
			if later := slices.IndexFunc(b.r.Programs[i+1:], func(p recipe.Program) bool { return wanted(p.Name) && b.willCompile(p.Name) }); later >= 0 {
				next = []string{b.r.Programs[i+1+later].Name}
			}
			builder.Report = func(s gobuild.State) { b.progress.Advance(kindProgram+" "+p.Name, compilePosition(s, next)) }
			return builder.Build(ctx, p, out)
		})
		if err != nil {
			return err
		}
		b.programs[p.Name] = item
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
		return Position{Doing: fmt.Sprintf("%d Go modules fetched", s.Fetched), Next: append([]string{"compiling", "linking"}, next...)}
	}
	return Position{Doing: "reading sources", Next: append([]string{"compiling", "linking"}, next...)}
}

// willCompile tells whether one of the programs is not in the cache. One whose key cannot be
// told is: buildPrograms says what is wrong with it.
func (b *build) willCompile(names ...string) bool {
	builder := b.goBuilder(b.l.Toolchain)
	return slices.ContainsFunc(names, func(name string) bool {
		key, err := builder.Key(b.r.Program(name))
		if err != nil {
			return true
		}
		_, ok := b.store.Lookup(dirOf(kindProgram), programInputs(key).key(kindProgram, name))
		return !ok
	})
}

// announce says before the first build from this directory that comes to its end what is not in the
// cache, and how long it takes. Programs with a go.mod of their own are from elsewhere, and large.
func (b *build) announce() {
	if len(b.last) > 0 {
		return
	}
	var missing []string
	for _, p := range b.r.Programs {
		if p.Module != "" && b.willCompile(p.Name) {
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
	return fmt.Sprintf("first run: not in the cache: %s%s; a first run takes about %d minutes on %s; interrupted, it continues where it was", strings.Join(names, ", "), more, minutes, on)
}
