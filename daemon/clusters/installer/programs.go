package installer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// programPackages are the Debian packages of which a node is made (daemon/metal/packages/kubernetes). containerd, runc
// and the programs that Kubernetes calls come with them.
var programPackages = []string{
	"kubelet", "kubeadm", "kubectl", "firstlight-kubernetes", "kubernetes-cni", "firstlight-containerd", "firstlight-node",
}

// inService reports whether the node is part of the cluster already. What its kubelet and its control plane are made
// of stays as it is then, whatever the stick has: changed, it would be another at the next restart, on all nodes at
// once and with their pods in place.
func (n *node) inService() bool {
	f := n.facts()
	return f.Programs != "" && !f.HalfMade
}

// programsScript prints the state and version of each package, in order, then what of the kernel's settings is in effect.
const programsScript = `
for package; do
	dpkg-query --show --showformat='${db:Status-Abbrev} ${Version}\n' "$package" 2>/dev/null || echo missing
done
cat /proc/sys/net/ipv4/ip_forward
grep -c overlay /proc/filesystems || true
`

func (n *node) programsDone(ctx context.Context) error {
	out, err := n.shell.RunScript(ctx, programsScript, programPackages...)
	if err != nil {
		return err
	}

	version, err := n.programsVersion(ctx)
	if err != nil {
		return err
	}

	return checkPrograms(out, version)
}

// programsVersion is the version of the packages that the node is to have: the stick's; "" for a node in service, which
// keeps its own.
func (n *node) programsVersion(ctx context.Context) (string, error) {
	if n.inService() {
		return "", nil
	}

	a, err := n.loadAppliance(ctx, n.shell.LocalAddr())
	if err != nil {
		return "", err
	}

	return a.programs, nil
}

// installed is the state of a package that is wanted and is there whole (dpkg-query(1), db:Status-Abbrev).
const installed = "ii"

// checkPrograms says what is wrong with what programsScript printed; nil if every package is there whole, in the
// version if one is given, and the kernel is as they want it.
func checkPrograms(out, version string) error {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != len(programPackages)+2 {
		return fmt.Errorf("the node listed %d lines for %d packages", len(lines), len(programPackages))
	}

	for i, name := range programPackages {
		state, is, _ := strings.Cut(strings.TrimSpace(lines[i]), " ")
		is = strings.TrimSpace(is)
		switch {
		case state != installed && version == "":
			return fmt.Errorf(
				"package %s is not installed, and nothing is on a node in service: install it there, or take the node out "+
					"of the cluster and add it again", name,
			)
		case state != installed:
			return fmt.Errorf("package %s is not installed", name)
		case version != "" && is != version:
			return fmt.Errorf("package %s has version %s, not %s", name, is, version)
		}
	}

	if lines[len(programPackages)] != "1" || lines[len(programPackages)+1] != "1" {
		return errors.New("the kernel's settings are not in effect")
	}

	return nil
}

// exitNotMade is the exit code of install if the repository lacks the version: EX_TEMPFAIL of sysexits.h.
const exitNotMade = 75

// install installs packages in one version from the appliance and from nowhere else. What a power cut left of an earlier
// try is completed first. The setting that matters is written even where sysctl is not allowed the others.
const install = `
export DEBIAN_FRONTEND=noninteractive
version=$1
shift
only="-o Dir::Etc::sourcelist=` + sourcesPath + ` -o Dir::Etc::sourceparts=- -o DPkg::Lock::Timeout=600
	-o Dpkg::Options::=--force-confold -o APT::Keep-Downloaded-Packages=false"
test -z "$(dpkg --audit)" || dpkg --force-confold --configure --pending
if test -n "$version"; then
	apt-get --quiet $only update
	apt-cache $only show "$1=$version" >/dev/null 2>&1 || exit 75
	for package; do
		set -- "$@" "$package=$version"
		shift
	done
	apt-get --quiet --yes --no-install-recommends --allow-downgrades $only install "$@"
fi
modprobe overlay 2>/dev/null || true
sysctl --load=/usr/lib/sysctl.d/60-kubernetes.conf >/dev/null 2>&1 || echo 1 >/proc/sys/net/ipv4/ip_forward
`

// programsDo installs the packages on a new node. On one in service it completes what is there.
func (n *node) programsDo(ctx context.Context, report bringup.Report) error {
	version, err := n.programsVersion(ctx)
	if err != nil {
		return err
	}

	report("installing Kubernetes " + assets.KubernetesVersion)
	_, err = n.runLocked(ctx, install, append([]string{version}, programPackages...)...)
	if remote.ExitCode(err) == exitNotMade {
		return bringup.Wait("the appliance to make the packages of Kubernetes")
	}

	return n.explainFetch(ctx, err)
}
