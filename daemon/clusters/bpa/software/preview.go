package software

import (
	"fmt"
	"slices"
	"strings"
)

// Change is a package that a node has, and the version that it is to get.
type Change struct {
	Name string
	From string // "" if its installation was interrupted
	To   string
}

// Preview is what an update would change on a node.
type Preview struct {
	Changes []Change // by name
	Error   string   // why that is not known, or cannot be had; no changes then
}

// IsKubernetes reports whether a package is what the kubelet and the commands of Kubernetes are made of. Those change
// when they are named, never with all others: a kubelet must not be newer than its API server.
func IsKubernetes(name string) bool {
	switch name {
	case "firstlight-kubernetes", "kubeadm", "kubectl", "kubelet", "kubernetes-cni":
		return true
	}
	return false
}

// PreviewScript asks a Debian or Ubuntu node, for /bin/sh as root, what Script would change there: of packages those
// that the node has, at their version or the newest; without any, all that have a newer version in the repository that
// Script takes them from. Packages whose installation was interrupted count in both cases. It changes nothing but the
// index of packages, and prints lines for ReadPreview.
func PreviewScript(owner string, packages []Package) string {
	var b strings.Builder
	fmt.Fprintf(&b, "owner='%s'\n", owner)
	b.WriteString(prologue)
	b.WriteString(previewPrologue)
	for _, p := range packages {
		fmt.Fprintf(&b, "preview %s %s\n", p.Name, quoteVersion(p.Version))
	}
	if len(packages) == 0 {
		b.WriteString(previewAll)
	}
	b.WriteString("echo 'firstlight: previewed'\n")
	return b.String()
}

// A package that is unpacked and not configured has lost its service until it is: states H, U and F of dpkg-query(1).
const previewPrologue = `apt-get -q $only -o DPkg::Lock::Timeout=600 update >&2 || echo "firstlight: index failed"
dpkg-query -W -f='${db:Status-Abbrev} ${Package} ${Version}\n' 2>/dev/null |
	sed -n 's/^[ih][HUF]R\{0,1\} *\([^ ]*\) \(.*\)/firstlight: changes \1 - \2/p'
preview() {
	have=$(installed "$1")
	if [ -z "$have" ] || [ "$have" = "$2" ]; then return; fi
	if [ -z "$2" ]; then
		next=$(newest "$1")
		if [ -n "$next" ] && dpkg --compare-versions "$have" lt "$next"; then
			echo "firstlight: changes $1 $have $next"
		fi
		return
	fi
	all=$(versions "$1")
	case " $all " in
	*" $2 "*) echo "firstlight: changes $1 $have $2" ;;
	*) echo "firstlight: lacks $1 $2 $all" ;;
	esac
}
`

// With what apt itself would bring to a newer version without removing anything.
const previewAll = `apt-get -q -s $only --no-install-recommends --with-new-pkgs upgrade |
	sed -n 's/^Inst \([^ ]*\) \[\([^]]*\)\] (\([^ ]*\) .*/\1 \2 \3/p' |
	while read -r name have next; do
		if dpkg --compare-versions "$have" lt "$next"; then echo "firstlight: changes $name $have $next"; fi
	done
`

// ReadPreview reads what PreviewScript printed for packages; said is what it printed on standard error.
func ReadPreview(packages []Package, out, said string) Preview {
	var p Preview
	var wrong []string
	complete := false
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "firstlight:" {
			continue
		}
		switch {
		case words[1] == "previewed":
			complete = true
		case words[1] == "index":
			wrong = append(wrong, "the index of packages could not be renewed: "+lastError(said))
		case words[1] == "lacks" && len(words) > 3:
			const text = "version %s of package %s is unavailable; there are: %s"
			wrong = append(wrong, fmt.Sprintf(text, words[3], words[2], strings.Join(words[4:], ", ")))
		case words[1] == "changes" && len(words) == 5:
			p.add(Change{Name: words[2], From: strings.TrimSuffix(words[3], "-"), To: words[4]}, len(packages) == 0)
		}
	}

	if !complete && len(wrong) == 0 {
		wrong = append(wrong, "its packages could not be listed: "+lastError(said))
	}
	if len(wrong) > 0 {
		return Preview{Error: strings.Join(wrong, "; ")}
	}

	slices.SortFunc(p.Changes, func(a, b Change) int { return strings.Compare(a.Name, b.Name) })
	return p
}

// add adds a change unless it is there. all says that no package was named.
func (p *Preview) add(c Change, all bool) {
	name, _, _ := strings.Cut(c.Name, ":") // of another architecture, name:arch
	if all && c.From != "" && IsKubernetes(name) {
		return
	}
	if !nameForm.MatchString(name) || !versionForm.MatchString(c.To) {
		return // it becomes words of a script
	}
	if slices.ContainsFunc(p.Changes, func(o Change) bool { return o.Name == c.Name }) {
		return
	}
	p.Changes = append(p.Changes, c)
}

// Targets are changes as packages for Script.
func Targets(changes []Change) []Package {
	all := make([]Package, 0, len(changes))
	for _, c := range changes {
		all = append(all, Package{Name: c.Name, Version: c.To})
	}
	return all
}
