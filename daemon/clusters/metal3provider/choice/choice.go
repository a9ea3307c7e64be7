// Package choice decides which BareMetalHost a Metal3Machine gets. It is pure: hosts and the machine's wish in, a host
// or the reasons against each out. Nobody else's host is ever an answer: consumerRef is the claim for all of the
// appliance's consumers.
package choice

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// Labels and annotations of BareMetalHosts, as Metal3 and its provider for Cluster API have them.
const (
	LabelNodeReuse      = "infrastructure.cluster.x-k8s.io/node-reuse"
	LabelFailureDomain  = "infrastructure.cluster.x-k8s.io/failure-domain"
	AnnotationUnhealthy = "capm3.metal3.io/unhealthy"

	annotationUnhealthyBefore = "capi.metal3.io/unhealthy"
)

// Reason says why a host is not chosen, for code; people get the sentence.
type Reason string

// The reasons, in the order in which they are looked for.
const (
	ReasonDeleting    Reason = "Deleting"
	ReasonReserved    Reason = "ReservedForReuse"
	ReasonNamed       Reason = "NamedForAnotherCluster"
	ReasonClaimed     Reason = "Claimed"
	ReasonExternal    Reason = "ExternallyProvisioned"
	ReasonUnhealthy   Reason = "Unhealthy"
	ReasonDetached    Reason = "Detached"
	ReasonHeld        Reason = "HeldByChecks"
	ReasonPaused      Reason = "Paused"
	ReasonError       Reason = "Error"
	ReasonImage       Reason = "ToBeInstalled"
	ReasonState       Reason = "NotAvailable"
	ReasonNotVerified Reason = "NotVerified"
)

// Rejection is a host that is not chosen.
type Rejection struct {
	Host     string
	Reason   Reason
	Sentence string // continues the name of the host
}

// Request is what a machine asks of a host.
type Request struct {
	Namespace     string // of the Metal3Machine, and of the hosts
	Name          string // of the Metal3Machine
	Cluster       string // of the Metal3Machine
	UID           string // of the Metal3Machine: of equal hosts, two machines prefer different ones
	Selector      labels.Selector
	FailureDomain string          // preferred; "": none
	Reuse         string          // value of LabelNodeReuse that is meant for it; "": none
	Taken         map[string]bool // hosts by name that another Metal3Machine is about to claim
}

// Outcome is a host, or what is in the way.
type Outcome struct {
	Host     string // "": none
	Own      bool   // the machine has claimed it before
	Reused   bool   // it was kept for this machine
	Awaited  string // the host that was kept for this machine is on its way; it takes no other
	Rejected []Rejection
}

// Choose decides. Hosts of other namespaces are passed over.
func Choose(hosts []metal3api.BareMetalHost, r Request) Outcome {
	var out Outcome
	var free, kept []*metal3api.BareMetalHost
	for i := range hosts {
		h := &hosts[i]
		switch {
		case h.Namespace != r.Namespace:
		case IsConsumedBy(h, r.Namespace, r.Name):
			return Outcome{Host: h.Name, Own: true}
		case r.Taken[h.Name], !r.Selector.Matches(labels.Set(h.Labels)):
		case h.Labels[label.Cluster] != "" && h.Labels[label.Cluster] != r.Cluster:
			out.Rejected = append(out.Rejected, *reject(h, ReasonNamed, "is named by site.yaml for cluster %s", h.Labels[label.Cluster]))
		case IsKeptFor(h, r.Reuse):
			kept = append(kept, h)
		default:
			if no := Check(h); no != nil {
				out.Rejected = append(out.Rejected, *no)
			} else {
				free = append(free, h)
			}
		}
	}

	if len(kept) > 0 {
		return chooseKept(kept, r, out)
	}

	if h := pickPreferred(inDomain(free, r.FailureDomain), r.UID); h != nil {
		return Outcome{Host: h.Name}
	}

	return out
}

// chooseKept takes a host that was kept for the machine. While all of them are being deprovisioned it takes no other.
func chooseKept(kept []*metal3api.BareMetalHost, r Request, out Outcome) Outcome {
	var ready []*metal3api.BareMetalHost
	for _, h := range kept {
		if no := CheckCondition(h); no != nil {
			out.Rejected = append(out.Rejected, *no)
		} else {
			ready = append(ready, h)
		}
	}

	if h := pickPreferred(inDomain(ready, r.FailureDomain), r.UID); h != nil {
		return Outcome{Host: h.Name, Reused: true}
	}

	out.Awaited = kept[0].Name
	return out
}

// inDomain are the hosts of a failure domain; if there are none, all of them.
func inDomain(hosts []*metal3api.BareMetalHost, domain string) []*metal3api.BareMetalHost {
	if domain == "" {
		return hosts
	}
	var there []*metal3api.BareMetalHost
	for _, h := range hosts {
		if h.Labels[LabelFailureDomain] == domain {
			there = append(there, h)
		}
	}
	if len(there) == 0 {
		return hosts
	}
	return there
}

// pickPreferred is the host that a machine likes best: always the same one of the same hosts, and for another machine
// most likely another one (rendezvous hashing). nil if there are none.
func pickPreferred(hosts []*metal3api.BareMetalHost, uid string) *metal3api.BareMetalHost {
	var best *metal3api.BareMetalHost
	var most uint64
	for _, h := range hosts {
		n := xxhash.Sum64String(uid + "/" + h.Name)
		if best == nil || n > most || n == most && h.Name < best.Name {
			best, most = h, n
		}
	}
	return best
}

// IsConsumedBy reports whether a host's claim names a Metal3Machine. The version and the UID of the reference do not
// count: both change when the objects move to another appliance.
func IsConsumedBy(h *metal3api.BareMetalHost, namespace, name string) bool {
	c := h.Spec.ConsumerRef
	return IsMachineRef(c) && c.Name == name && c.Namespace == namespace
}

// IsMachineRef reports whether a host's claim names some Metal3Machine.
func IsMachineRef(c *corev1.ObjectReference) bool {
	if c == nil || c.Kind != "Metal3Machine" {
		return false
	}
	group, _, _ := strings.Cut(c.APIVersion, "/")
	return group == v1beta2.GroupVersion.Group
}

// IsKeptFor reports whether a released host waits for a machine of just this control plane or deployment.
func IsKeptFor(h *metal3api.BareMetalHost, reuse string) bool {
	if reuse == "" || h.Labels[LabelNodeReuse] != reuse || h.DeletionTimestamp != nil {
		return false
	}
	c := h.Spec.ConsumerRef
	return c == nil || c.Kind == "Cluster"
}

// Check says why a host cannot be given to a machine that it was not kept for; nil if it can.
func Check(h *metal3api.BareMetalHost) *Rejection {
	c := h.Spec.ConsumerRef
	switch {
	case h.DeletionTimestamp != nil:
		return reject(h, ReasonDeleting, "is being deleted")
	case h.Labels[LabelNodeReuse] != "":
		return reject(h, ReasonReserved, "is kept for the next machine of %s (label %s)",
			h.Labels[LabelNodeReuse], LabelNodeReuse)
	case c != nil:
		return reject(h, ReasonClaimed, "belongs to %s %s/%s", c.Kind, c.Namespace, c.Name)
	case h.Spec.Image != nil || h.Spec.CustomDeploy != nil:
		return reject(h, ReasonImage, "has an image already, and nobody claims it")
	case h.Annotations[label.Wanted] != "" || h.Labels[label.Site] != "" || h.Annotations[label.Image] != "":
		return reject(h, ReasonImage, "is to be installed with the image that its owner names")
	}
	return CheckCondition(h)
}

// CheckCondition says why nothing can be installed on a host, whoever it belongs to; nil if it can.
func CheckCondition(h *metal3api.BareMetalHost) *Rejection {
	_, paused := h.Annotations[metal3api.PausedAnnotation]
	_, detached := h.Annotations[metal3api.DetachedAnnotation]
	_, unhealthy := h.Annotations[AnnotationUnhealthy]
	_, unhealthyBefore := h.Annotations[annotationUnhealthyBefore]
	state := h.Status.Provisioning.State
	switch {
	case h.Spec.ExternallyProvisioned:
		return reject(h, ReasonExternal, "is externally provisioned")
	case unhealthy || unhealthyBefore:
		return reject(h, ReasonUnhealthy, "was given up as unhealthy; once it is repaired remove the annotation %s",
			AnnotationUnhealthy)
	case detached || h.Status.OperationalStatus == metal3api.OperationalStatusDetached:
		return reject(h, ReasonDetached, "is detached")
	case h.Annotations[metal3api.PausedAnnotation] == label.Hold:
		return reject(h, ReasonHeld, "is held until the appliance's checks have passed; see firstlightd why %s", h.Name)
	case paused:
		return reject(h, ReasonPaused, "is paused (annotation %s)", metal3api.PausedAnnotation)
	case h.Status.ErrorMessage != "" || h.Status.OperationalStatus == metal3api.OperationalStatusError:
		return reject(h, ReasonError, "has an error; see firstlightd why %s", h.Name)
	case state != metal3api.StateAvailable && state != metal3api.StateReady:
		return reject(h, ReasonState, "is %s", stateName(state))
	case h.Labels[label.Verified] == "":
		return reject(h, ReasonNotVerified, "is not proven yet (label %s)", label.Verified)
	}
	return nil
}

func reject(h *metal3api.BareMetalHost, reason Reason, format string, args ...any) *Rejection {
	return &Rejection{Host: h.Name, Reason: reason, Sentence: fmt.Sprintf(format, args...)}
}

func stateName(s metal3api.ProvisioningState) string {
	if s == metal3api.StateNone {
		return "not registered yet"
	}
	return string(s)
}

// operators are the words for a selector's operators, in lower case.
var operators = map[string]selection.Operator{
	"in":           selection.In,
	"notin":        selection.NotIn,
	"exists":       selection.Exists,
	"doesnotexist": selection.DoesNotExist,
	"!":            selection.DoesNotExist,
	"=":            selection.Equals,
	"==":           selection.DoubleEquals,
	"!=":           selection.NotEquals,
	"gt":           selection.GreaterThan,
	"lt":           selection.LessThan,
}

// ParseSelector is what a selector asks of labels. The error names the field, and what is wrong with it.
func ParseSelector(s v1beta2.HostSelector) (labels.Selector, error) {
	all := labels.NewSelector()
	for key, value := range s.MatchLabels {
		r, err := labels.NewRequirement(key, selection.Equals, []string{value})
		if err != nil {
			return nil, fmt.Errorf("hostSelector.matchLabels: %w", err)
		}
		all = all.Add(*r)
	}

	for i, e := range s.MatchExpressions {
		operator, known := operators[strings.ToLower(e.Operator)]
		if !known {
			return nil, fmt.Errorf("hostSelector.matchExpressions[%d].operator: %q is unknown; use in, notin, exists, "+
				"doesnotexist, =, !=, gt or lt", i, e.Operator)
		}
		r, err := labels.NewRequirement(e.Key, operator, slices.Clone(e.Values))
		if err != nil {
			return nil, fmt.Errorf("hostSelector.matchExpressions[%d]: %w", i, err)
		}
		all = all.Add(*r)
	}

	return all, nil
}

// Describe is one sentence for why there is no host: how many there are of each reason, and one of them by name.
func Describe(rejected []Rejection) string {
	if len(rejected) == 0 {
		return "no host of this namespace fits hostSelector"
	}

	counts, examples := map[Reason]int{}, map[Reason]Rejection{}
	var order []Reason
	for _, r := range rejected {
		if counts[r.Reason]++; counts[r.Reason] == 1 {
			order = append(order, r.Reason)
			examples[r.Reason] = r
		}
	}

	var parts []string
	for _, reason := range order {
		text := "host " + examples[reason].Host + " " + examples[reason].Sentence
		if n := counts[reason]; n > 1 {
			text += fmt.Sprintf(" (and %d more: %s)", n-1, reason)
		}
		parts = append(parts, text)
	}

	return "no host is available: " + strings.Join(parts, "; ")
}
