package lock

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Diff names every difference from one lock to another, one line each, in the words
// of a reader: what was added, removed, or changed from what to what.
func Diff(from, to *Lock) []string {
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if from.Toolchain != to.Toolchain {
		say("toolchain %s -> %s", from.Toolchain, to.Toolchain)
	}

	compare(from.Requested, to.Requested, func(name, was, is string) {
		switch {
		case was == "":
			say("root %s added", name)
		case is == "":
			say("root %s removed", name)
		default:
			say("root %s asks for other packages", name)
		}
	})
	compare(from.Debs, to.Debs, func(name string, was, is Deb) { diffDeb(say, name, was, is) })
	compare(
		from.Images, to.Images, func(name, was, is string) {
			say("image %s %s -> %s", name, cmp.Or(was, "none"), cmp.Or(is, "none"))
		},
	)
	compare(modulesByKey(from), modulesByKey(to), func(key [2]string, was, is Module) {
		where := key[1] + " (" + key[0] + "/go.mod)"
		switch {
		case was.Path == "":
			say("module %s added at %s", where, is.Version)
		case is.Path == "":
			say("module %s %s removed", where, was.Version)
		case was.Version != is.Version:
			say("module %s %s -> %s", where, was.Version, is.Version)
		default:
			say("module %s %s has another sum", where, is.Version)
		}
	})
	return lines
}

func diffDeb(say func(string, ...any), name string, was, is Deb) {
	switch {
	case was.Name == "":
		say("deb %s added at %s in %v", name, is.Version, is.Roots)
	case is.Name == "":
		say("deb %s %s removed from %v", name, was.Version, was.Roots)
	case was.Version != is.Version:
		say("deb %s %s -> %s", name, was.Version, is.Version)
	case was.SHA256 != is.SHA256:
		say("deb %s %s has another sha256", name, is.Version)
	case !slices.Equal(was.Roots, is.Roots):
		say("deb %s is in %v and was in %v", name, is.Roots, was.Roots)
	default:
		say("deb %s %s is listed differently", name, is.Version)
	}
}

func modulesByKey(l *Lock) map[[2]string]Module {
	byKey := map[[2]string]Module{}
	for _, m := range l.Modules {
		byKey[[2]string{m.Dir, m.Path}] = m
	}
	return byKey
}

// compare calls differ, in the order of keys, with the zero value for what is missing.
func compare[K comparable, V any](from, to map[K]V, differ func(K, V, V)) {
	keys := map[K]bool{}
	for k := range from {
		keys[k] = true
	}

	for k := range to {
		keys[k] = true
	}

	sorted := slices.SortedFunc(maps.Keys(keys), func(a, b K) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, k := range sorted {
		was, is := from[k], to[k]
		if fmt.Sprint(was) != fmt.Sprint(is) {
			differ(k, was, is)
		}
	}
}

// SameDebs says whether two locks have the same packages in the same roots.
func SameDebs(a, b *Lock) bool {
	same := true
	compare(a.Debs, b.Debs, func(string, Deb, Deb) { same = false })
	return same
}

// SortModules puts modules into the order of the text form.
func SortModules(modules []Module) {
	slices.SortFunc(modules, func(a, b Module) int {
		return cmp.Or(cmp.Compare(a.Dir, b.Dir), cmp.Compare(a.Path, b.Path))
	})
}
