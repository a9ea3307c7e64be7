package operator

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/contract/inventory"
)

// Reasons that are about the resource itself.
const (
	InvalidName      = "InvalidName"
	ClusterRenamed   = "ClusterRenamed"
	ClusterNameTaken = "ClusterNameTaken"
	InvalidSubnet    = "InvalidSubnet"
	AddressTwice     = "AddressTwice"
	NoInstaller      = "NoInstaller"
	LabelRefused     = "LabelRefused"
	MastersRefused   = "MastersRefused"

	InstallerNotAllowed = "InstallerNotAllowed"
)

// checkSpec says what is wrong with what is asked, whatever the hosts are.
func (r *Provisionings) checkSpec(w *clusterState) ([]match.Node, []match.Problem) {
	nodes, problems := match.ParseNodes(w.cr.Spec)
	wrong := func(reason, format string, args ...any) {
		problems = append(problems, match.Problem{Reason: reason, Sentence: fmt.Sprintf(format, args...)})
	}
	if errs := validation.IsDNS1123Label(kud.JobName(w.cluster)); len(errs) > 0 {
		wrong(InvalidName, "the label cluster=%q cannot name a Job kud-CLUSTER: use up to 59 of a-z, 0-9 and '-', ending with a letter or digit", w.cluster)
	}

	if w.nameOwner != "" {
		wrong(
			ClusterNameTaken, "cluster %s is that of Provisioning %s already; set the label cluster to another name",
			w.cluster, w.nameOwner,
		)
	}

	if w.renamed != "" {
		wrong(
			ClusterRenamed,
			"cluster %s was begun under this name and cannot become %s; set the label cluster back, "+kud.GiveUp,
			w.cluster, w.renamed,
		)
	}

	for _, f := range []struct{ name, text string }{{"PodSubnet", w.cr.Spec.PodSubnet}, {"ServiceSubnet", w.cr.Spec.ServiceSubnet}} {
		if p, err := netip.ParsePrefix(f.text); f.text != "" && (err != nil || p != p.Masked()) {
			wrong(InvalidSubnet, "%s %q is not a network; write one such as 10.244.64.0/18", f.name, f.text)
		}
	}

	if r.Installer == "" && w.cr.Spec.InstallerImage == "" {
		wrong(NoInstaller, "this appliance has no installer of clusters; name one: installerImage (docs/kud.md)")
	}

	if image := w.cr.Spec.InstallerImage; image != "" && image != r.Installer && !slices.Contains(r.Allowed, image) {
		allowed := strings.Join(r.Allowed, ", ")
		if allowed == "" {
			allowed = "none"
		}
		wrong(InstallerNotAllowed, "installerImage %q may not run here, as root on the appliance; besides the stick's own the site allows: %s (appliance.installerImages)", image, allowed)
	}

	if w.cr.Spec.InstallerImage == "" {
		problems = append(problems, checkNodes(nodes, problems)...)
	}

	if w.virtlet {
		for _, n := range nodes {
			if n.CPU != 0 || n.Memory != 0 || n.SRIOV || n.QAT || n.Host != "" {
				wrong(
					match.NothingAsked,
					"MAC address for VM %s not provided: a virtual machine is found by mac-address alone; remove the rest",
					n.Label,
				)
			}
		}
	}

	return nodes, problems
}

// checkNodes returns what the stick's installer would refuse of the nodes, where nothing else did: it is not to be
// found out when hosts are claimed already.
func checkNodes(nodes []match.Node, known []match.Problem) (problems []match.Problem) {
	const way = "or name another installer: installerImage (docs/kud.md)"
	masters := 0
	for _, n := range nodes {
		if n.Master {
			masters++
		}
		if slices.ContainsFunc(known, func(p match.Problem) bool { return p.Reason == match.InvalidLabel }) {
			continue
		}
		if err := inventory.CheckLabel(n.Label); err != nil {
			problems = append(problems, match.Problem{
				Reason:   LabelRefused,
				Sentence: fmt.Sprintf("node %s: the label is %v; %s", n.Label, err, way),
				Node:     n,
			})
		}
	}

	if masters == 0 {
		return problems
	}

	if err := inventory.CheckControlPlanes(masters); err != nil {
		problems = append(
			problems, match.Problem{Reason: MastersRefused, Sentence: fmt.Sprintf("spec.masters: %v; %s", err, way)},
		)
	}

	return problems
}
