// Package sizing proposes clusters for hosts that nobody has made one for. It is pure: the
// same hosts give the same proposal.
package sizing

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
)

// MaxNodes is how many nodes one cluster has at most.
const MaxNodes = 100

// Fewest that a control plane needs (kubeadm's preflight asks for 2 CPUs and 1700 MiB).
const (
	minCPU    = 2
	minMemory = 1700 << 20
)

// Proposal is clusters for all hosts that can be used, and a sentence about them.
type Proposal struct {
	Sentence      string
	Waiting       []string // hosts that are not ready yet, with what they wait for
	Left          []string // hosts that are left out, with the reason
	Provisionings []v1alpha1.Provisioning
}

// Propose makes one cluster of each MaxNodes hosts, as even as can be, named after the site:
//
//   - one or two hosts: one control plane, which works as well if it is alone;
//   - three and more: three control planes, which work as well up to five hosts;
//   - control planes are the smallest hosts that are large enough, those without SR-IOV and
//     QAT first: workers can use these.
//
// Hosts that belong to a cluster, or still hold a former one, are left out.
func Propose(site, namespace string, hosts []match.Host) Proposal {
	var p Proposal
	var free []match.Host
	for _, h := range match.NewHosts(hosts).All {
		switch {
		case h.Claim.Owner != "":
			p.Left = append(p.Left, h.Name+" belongs to "+h.Claim.Owner)
		case h.PinnedBy != "":
			p.Left = append(p.Left, h.Name+" is named in "+h.PinnedBy)
		case h.PreviousCluster != "":
			p.Left = append(p.Left, h.Name+" still holds the former cluster "+h.PreviousCluster)
		case h.UnusableReason != "":
			p.Waiting = append(p.Waiting, h.Name+" "+h.UnusableReason)
		default:
			free = append(free, h)
		}
	}

	count := (len(free) + MaxNodes - 1) / MaxNodes
	for i := range count {
		share := free[i*len(free)/count : (i+1)*len(free)/count]
		name := site
		if count > 1 {
			name = fmt.Sprintf("%s-%d", site, i+1)
		}

		cluster, ok := newProvisioning(name, namespace, share)
		if !ok {
			p.Left = append(p.Left, fmt.Sprintf(
				"%d hosts: none of them has %d CPUs and %d MiB of memory for a control plane", len(share), minCPU,
				minMemory>>20,
			))
			continue
		}

		p.Provisionings = append(p.Provisionings, cluster)
	}

	p.Sentence = p.describe(len(hosts))
	return p
}

func (p Proposal) describe(hosts int) string {
	var parts []string
	for _, c := range p.Provisionings {
		masters, workers := len(c.Spec.Masters), len(c.Spec.Workers)
		text := fmt.Sprintf("cluster %s with %d control plane", c.Name, masters)
		if masters > 1 {
			text += "s"
		}

		if both := countDoubleRoles(c); both > 0 || workers == 0 {
			text += ", which work as well"
			workers -= both
		}

		if workers > 0 {
			text += fmt.Sprintf(", and %d workers", workers)
		}

		parts = append(parts, text)
	}

	s := "no cluster"
	if len(parts) > 0 {
		s = strings.Join(parts, "; ")
	}

	return fmt.Sprintf("of %d hosts: %s; %d are waited for, %d are left out", hosts, s, len(p.Waiting), len(p.Left))
}

// countDoubleRoles counts nodes with both roles that are listed twice.
func countDoubleRoles(c v1alpha1.Provisioning) int {
	n := 0
	for _, item := range c.Spec.Workers {
		for _, body := range item {
			if *body == (v1alpha1.Body{}) {
				n++
			}
		}
	}
	return n
}

func newProvisioning(name, namespace string, hosts []match.Host) (v1alpha1.Provisioning, bool) {
	controlPlanes := 1
	if len(hosts) >= 3 {
		controlPlanes = 3
	}

	fit := func(h match.Host) bool { return h.CPU >= minCPU && h.Memory >= minMemory }
	hosts = slices.Clone(hosts)
	slices.SortStableFunc(hosts, func(a, b match.Host) int {
		if fit(a) != fit(b) {
			if fit(a) {
				return -1
			}
			return 1
		}
		return a.DeviceCount() - b.DeviceCount()
	})
	able := len(hosts)
	if i := slices.IndexFunc(hosts, func(h match.Host) bool { return !fit(h) }); i >= 0 {
		able = i
	}

	if able == 0 {
		return v1alpha1.Provisioning{}, false
	}

	if able < controlPlanes {
		controlPlanes = 1
	}

	p := v1alpha1.Provisioning{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Provisioning"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: namespace,
			Labels:    map[string]string{v1alpha1.LabelCluster: name},
		},
	}
	for i, h := range hosts {
		_, host, _ := strings.Cut(h.Name, "/")
		body := &v1alpha1.Body{Host: host}
		if i < controlPlanes {
			p.Spec.Masters = append(p.Spec.Masters, map[string]*v1alpha1.Body{fmt.Sprintf("master-%d", i+1): body})
			continue
		}

		p.Spec.Workers = append(
			p.Spec.Workers, map[string]*v1alpha1.Body{fmt.Sprintf("worker-%d", i+1-controlPlanes): body},
		)
	}

	if len(hosts) <= 5 && controlPlanes == 3 && len(p.Spec.Workers) > 0 {
		for i := range controlPlanes { // an empty body: kubectl apply would drop a null, and the label with it
			p.Spec.Workers = append(p.Spec.Workers, map[string]*v1alpha1.Body{fmt.Sprintf("master-%d", i+1): {}})
		}
	}

	return p, true
}
