// Package software decides what a Software resource installs on which node, as a script for
// that node, and reads what the script said. It is pure; package operator runs it.
package software

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// Package is one package that is asked for; without a version it is the newest that the node's repositories have, as
// in ICN.
type Package struct{ Name, Version string }

// What a package and a version may be called (Debian policy 5.6.1 and 5.6.12). They become
// words of a script, so nothing else may pass.
var (
	nameForm    = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]+$`)
	versionForm = regexp.MustCompile(`^[0-9][A-Za-z0-9.+~:-]*$`)
)

// List reads one of a Software's lists, in its order; within an item with several packages
// that of the alphabet. The error says all that is wrong.
func List(field string, items []v1alpha1.Packages) ([]Package, error) {
	var all []Package
	var wrong []string
	add := func(i int, name, version string) {
		switch {
		case !nameForm.MatchString(name):
			wrong = append(wrong, fmt.Sprintf("%s[%d]: %q is not the name of a package", field, i, name))
		case version != "" && !versionForm.MatchString(version):
			wrong = append(wrong, fmt.Sprintf("%s[%d]: %q is not a version of package %s", field, i, version, name))
		default:
			all = append(all, Package{name, version})
		}
	}
	for i, item := range items {
		if item.Single {
			add(i, item.Name, "")
			continue
		}
		if len(item.Asked) == 0 {
			wrong = append(
				wrong, fmt.Sprintf("%s[%d]: names no package; write NAME, or NAME: {version: VERSION}", field, i),
			)
		}
		for _, name := range slices.Sorted(maps.Keys(item.Asked)) {
			version := ""
			if v := item.Asked[name]; v != nil {
				version = v.Version
			}
			add(i, name, version)
		}
	}

	if len(wrong) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(wrong, "; "))
	}

	return all, nil
}

// Merge is what a node with several roles gets: each package once, where it stood first. A
// version that one list asks for satisfies a list that asks for none.
func Merge(lists ...[]Package) ([]Package, error) {
	var all []Package
	for _, list := range lists {
		for _, p := range list {
			i := slices.IndexFunc(all, func(o Package) bool { return o.Name == p.Name })
			switch {
			case i < 0:
				all = append(all, p)
			case p.Version == "" || p.Version == all[i].Version:
			case all[i].Version == "":
				all[i].Version = p.Version
			default:
				return nil, fmt.Errorf(
					"package %s is asked for as %s and as %s for one node; keep one of the two", p.Name,
					all[i].Version, p.Version,
				)
			}
		}
	}
	return all, nil
}

// Script makes the packages be there on a Debian or Ubuntu node, for /bin/sh as root. What
// is there in the version that is asked for, or in the newest, is left alone, so running it again changes nothing; if
// a package or a version cannot be had, nothing is installed. Where the index cannot be renewed, what is there stays. A node that was given the appliance's repository
// (docs/clusters.md) takes packages from nowhere else, and there from the stick and from what the
// owner of its cluster uploaded: there is no way to other mirrors, and
// apt would wait for them. What is merely recommended is not installed: its name may belong to another owner.
// It says how things stand in lines for Read.
func Script(owner string, packages []Package) string {
	var b strings.Builder
	fmt.Fprintf(&b, "owner='%s'\n", owner)
	b.WriteString(prologue)
	for _, p := range packages {
		fmt.Fprintf(&b, "want %s %s\n", p.Name, quoteVersion(p.Version))
	}

	b.WriteString(middle)
	for _, p := range packages {
		fmt.Fprintf(&b, "tell %s\n", p.Name)
	}

	return b.String()
}

func quoteVersion(version string) string { return "'" + version + "'" }

const prologue = `export DEBIAN_FRONTEND=noninteractive LC_ALL=C
only=
sources=/etc/apt/sources.list.d/firstlight.sources
if [ -e $sources ]; then
	both=$(mktemp --suffix=.sources) || exit 1
	trap 'rm -f "$both"' EXIT
	sed "s/^Suites:.*/Suites: firstlight $owner/" $sources >"$both"
	chmod 644 "$both"
	only="-o Dir::Etc::sourcelist=$both -o Dir::Etc::sourceparts=-"
fi
installed() { dpkg-query -W -f='${db:Status-Abbrev} ${Version}\n' "$1" 2>/dev/null | sed -n 's/^[ih]i *//p' | head -n 1; }
newest() { apt-cache $only policy "$1" | sed -n 's/^ *Candidate: *//p' | sed '/^(none)$/d'; }
versions() { apt-cache $only madison "$1" | sed 's/^[^|]*| *\([^ |]*\).*/\1/' | sort -u | tr '\n' ' '; }
todo= lacking= fresh=
want() {
	have=$(installed "$1")
	if [ -n "$have" ] && [ "$have" = "$2" ]; then return; fi
	if [ -z "$fresh" ]; then
		fresh=yes
		apt-get -q $only -o DPkg::Lock::Timeout=600 update >&2 || echo "firstlight: index failed"
	fi
	if [ -n "$have" ] && [ -z "$2" ]; then
		case $(newest "$1") in
		"" | "$have") return ;;
		esac
	fi
	all=$(versions "$1")
	case " $all " in
	"  ") lacking=yes; echo "firstlight: lacks $1 ${2:-any}" ;;
	*" ${2:-${all%% *}} "*) todo="$todo $1${2:+=$2}"; echo "firstlight: installs $1" ;;
	*) lacking=yes; echo "firstlight: lacks $1 $2 $all" ;;
	esac
}
tell() { echo "firstlight: has $1 $(installed "$1")"; }
`

// What a power cut interrupted is configured first: apt does nothing before.
const middle = `if [ -n "$todo" ] && [ -z "$lacking" ]; then
	dpkg --force-confold --configure -a >&2 </dev/null || true
	apt-get -q -y $only --no-install-recommends -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold --allow-downgrades install $todo >&2 </dev/null || echo "firstlight: failed $?"
fi
`

// Read turns what the script said into the state of each package. said is what it printed
// on standard error, whose end explains a failure.
func Read(packages []Package, out, said string) []v1alpha1.PackageStatus {
	has, lacks := map[string]string{}, map[string][]string{}
	begun, failed, stale := map[string]bool{}, false, false
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "firstlight:" {
			continue
		}
		switch words[1] {
		case "has":
			if len(words) > 3 {
				has[words[2]] = words[3]
			}
		case "lacks":
			lacks[words[2]] = words[3:]
		case "installs":
			begun[words[2]] = true
		case "failed":
			failed = true
		case "index":
			stale = true
		}
	}

	var all []v1alpha1.PackageStatus
	for _, p := range packages {
		s := v1alpha1.PackageStatus{Name: p.Name, Installed: has[p.Name]}
		missing, short := lacks[p.Name]
		switch {
		case failed && begun[p.Name] && p.Version == "" && s.Installed != "":
			s.Error = "has version " + s.Installed + ", and the newest is not installed: " + lastError(said)
		case s.Installed != "" && (p.Version == "" || p.Version == s.Installed):
		case short && len(missing) > 1:
			s.Missing = p.Name + "=" + missing[0]
			s.Error = fmt.Sprintf(
				"version %s is unavailable; there are: %s", missing[0], strings.Join(missing[1:], ", "),
			)
		case short && stale:
			s.Error = "unavailable; the index of packages could not be renewed: " + lastError(said)
		case short:
			s.Missing = p.Name
			if p.Version != "" {
				s.Missing += "=" + p.Version
			}
			s.Error = "there is no such package in the node's repositories"
		case len(lacks) > 0:
			s.Error = "not installed, because of the others that are unavailable"
		case failed:
			s.Error = "not installed: " + lastError(said)
		case s.Installed != "":
			s.Error = fmt.Sprintf("has version %s, not %s", s.Installed, p.Version)
		default:
			s.Error = "was installed as another package; name the one that provides it"
		}

		all = append(all, s)
	}

	return all
}

// lastError is what apt complained of, but for headings of what follows, else the end of what it said.
func lastError(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	for _, l := range slices.Backward(lines) {
		if strings.HasPrefix(l, "E: ") && !strings.HasSuffix(l, ":") {
			return strings.TrimPrefix(l, "E: ")
		}
	}
	return lines[len(lines)-1]
}
