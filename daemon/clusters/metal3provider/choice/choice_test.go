package choice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// newHost is one that any machine may have.
func newHost(name string, change ...func(*metal3api.BareMetalHost)) metal3api.BareMetalHost {
	h := metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace:   "metal3",
		Name:        name,
		Labels:      map[string]string{label.Verified: label.VerifiedHardware},
		Annotations: map[string]string{},
	}}
	h.Status.Provisioning.State = metal3api.StateAvailable
	h.Status.OperationalStatus = metal3api.OperationalStatusOK
	for _, c := range change {
		c(&h)
	}
	return h
}

func annotate(key, value string) func(*metal3api.BareMetalHost) {
	return func(h *metal3api.BareMetalHost) { h.Annotations[key] = value }
}

func setLabel(key, value string) func(*metal3api.BareMetalHost) {
	return func(h *metal3api.BareMetalHost) { h.Labels[key] = value }
}

func consume(kind, name, version string) func(*metal3api.BareMetalHost) {
	return func(h *metal3api.BareMetalHost) {
		h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: kind, Namespace: "metal3", Name: name, APIVersion: version}
	}
}

func setState(s metal3api.ProvisioningState) func(*metal3api.BareMetalHost) {
	return func(h *metal3api.BareMetalHost) { h.Status.Provisioning.State = s }
}

// TestOneHost: what keeps a host from being chosen, one thing at a time.
func TestOneHost(t *testing.T) {
	now := metav1.Now()
	for _, c := range []struct {
		name   string
		host   metal3api.BareMetalHost
		reason Reason
	}{
		{"free", newHost("h"), ""},
		{"of before, ready", newHost("h", setState(metal3api.StateReady)), ""},
		{"being deleted", newHost("h", func(h *metal3api.BareMetalHost) { h.DeletionTimestamp = &now }), ReasonDeleting},
		{"of a Provisioning", newHost("h", consume("Provisioning", "edge", "bpa.akraino.org/v1alpha1")), ReasonClaimed},
		{"of another machine", newHost("h", consume("Metal3Machine", "n", v1beta2.GroupVersion.String())), ReasonClaimed},
		{"of a Metal3Machine of another group", newHost("h", consume("Metal3Machine", "m", "example.com/v1")), ReasonClaimed},
		{"kept for another", newHost("h", setLabel(LabelNodeReuse, "md-other")), ReasonReserved},
		{"externally provisioned", newHost("h", func(h *metal3api.BareMetalHost) { h.Spec.ExternallyProvisioned = true }), ReasonExternal},
		{"unhealthy", newHost("h", annotate(AnnotationUnhealthy, "")), ReasonUnhealthy},
		{"unhealthy, by the annotation of before", newHost("h", annotate("capi.metal3.io/unhealthy", "")), ReasonUnhealthy},
		{"detached", newHost("h", annotate(metal3api.DetachedAnnotation, "")), ReasonDetached},
		{"held by the checks", newHost("h", annotate(metal3api.PausedAnnotation, label.Hold)), ReasonHeld},
		{"paused by its owner", newHost("h", annotate(metal3api.PausedAnnotation, "")), ReasonPaused},
		{"an error", newHost("h", func(h *metal3api.BareMetalHost) { h.Status.ErrorMessage = "no power" }), ReasonError},
		{"an image and no owner", newHost("h", func(h *metal3api.BareMetalHost) { h.Spec.Image = &metal3api.Image{URL: "http://x"} }), ReasonImage},
		{"of the site", newHost("h", setLabel(label.Site, "fleet")), ReasonImage},
		{"its image waits for its inspection", newHost("h", annotate(label.Wanted, "{}")), ReasonImage},
		{"being inspected", newHost("h", setState(metal3api.StateInspecting)), ReasonState},
		{"installed", newHost("h", setState(metal3api.StateProvisioned)), ReasonState},
		{"new", newHost("h", setState(metal3api.StateNone)), ReasonState},
		{"not proven", newHost("h", func(h *metal3api.BareMetalHost) { h.Labels = nil }), ReasonNotVerified},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := Choose([]metal3api.BareMetalHost{c.host}, Request{Namespace: "metal3", Name: "m", UID: "u", Selector: labels.Everything()})
			if c.reason == "" {
				assert.Equal(t, Outcome{Host: "h"}, out)
				return
			}
			assert.Empty(t, out.Host)
			if assert.Len(t, out.Rejected, 1) {
				assert.Equal(t, c.reason, out.Rejected[0].Reason)
				assert.Contains(t, Describe(out.Rejected), "host h "+out.Rejected[0].Sentence)
			}
		})
	}
}

// TestSeveralHosts: which of them.
func TestSeveralHosts(t *testing.T) {
	ours := consume("Metal3Machine", "m", "infrastructure.cluster.x-k8s.io/v1beta1")
	reuse := setLabel(LabelNodeReuse, "cp-edge")
	for _, c := range []struct {
		name    string
		hosts   []metal3api.BareMetalHost
		request Request
		want    Outcome
	}{
		{"its own, of whatever version and state, before any free one",
			[]metal3api.BareMetalHost{newHost("a"), newHost("b", ours, setState(metal3api.StateProvisioning))}, Request{},
			Outcome{Host: "b", Own: true}},
		{"its failure domain", []metal3api.BareMetalHost{newHost("a"), newHost("b", setLabel(LabelFailureDomain, "row-1"))},
			Request{FailureDomain: "row-1"}, Outcome{Host: "b"}},
		{"no host in its failure domain", []metal3api.BareMetalHost{newHost("a")}, Request{FailureDomain: "row-1"}, Outcome{Host: "a"}},
		{"one that another machine is about to claim", []metal3api.BareMetalHost{newHost("a"), newHost("b")},
			Request{Taken: map[string]bool{"a": true}}, Outcome{Host: "b"}},
		{"of another namespace", []metal3api.BareMetalHost{newHost("a", func(h *metal3api.BareMetalHost) { h.Namespace = "x" }), newHost("b")},
			Request{}, Outcome{Host: "b"}},
		{"kept for it", []metal3api.BareMetalHost{newHost("a"), newHost("b", reuse, consume("Cluster", "edge", "cluster.x-k8s.io/v1beta2"))},
			Request{Reuse: "cp-edge"}, Outcome{Host: "b", Reused: true}},
		{"kept for it, and still on its way", []metal3api.BareMetalHost{newHost("a"), newHost("b", reuse, setState(metal3api.StateDeprovisioning))},
			Request{Reuse: "cp-edge"}, Outcome{Awaited: "b", Rejected: []Rejection{{Host: "b", Reason: ReasonState, Sentence: "is deprovisioning"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.request.Namespace, c.request.Name, c.request.UID, c.request.Selector = "metal3", "m", "u", labels.Everything()
			assert.Equal(t, c.want, Choose(c.hosts, c.request))
		})
	}
}

// TestSelectors: all of a selector must hold, and an operator that nobody knows chooses nothing.
func TestSelectors(t *testing.T) {
	require := require.New(t)
	host := labels.Set{"rack": "1", "disks": "4"}
	expression := func(key, operator string, values ...string) v1beta2.HostSelector {
		return v1beta2.HostSelector{MatchExpressions: []v1beta2.HostSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	for _, c := range []struct {
		s    v1beta2.HostSelector
		fits bool
	}{
		{v1beta2.HostSelector{}, true},
		{v1beta2.HostSelector{MatchLabels: map[string]string{"rack": "1"}}, true},
		{v1beta2.HostSelector{MatchLabels: map[string]string{"rack": "1", "disks": "5"}}, false},
		{expression("rack", "In", "1", "2"), true},
		{expression("rack", "NotIn", "1"), false},
		{expression("gpu", "DoesNotExist"), true},
		{expression("gpu", "!"), true},
		{expression("gpu", "exists"), false},
		{expression("disks", "Gt", "3"), true},
		{expression("disks", "lt", "3"), false},
		{expression("rack", "!=", "1"), false},
	} {
		s, err := ParseSelector(c.s)
		require.NoError(err)
		require.Equal(c.fits, s.Matches(host), "%v", c.s)
	}
	_, err := ParseSelector(expression("rack", "like", "1"))
	require.ErrorContains(err, `hostSelector.matchExpressions[0].operator: "like" is unknown; use in, `)
	_, err = ParseSelector(expression("rack", "in"))
	require.ErrorContains(err, "hostSelector.matchExpressions[0]: ")
}

// TestMachinesPreferDifferentHosts: a hundred machines that choose at once do not all want the same host.
func TestMachinesPreferDifferentHosts(t *testing.T) {
	hosts := newRack(100)
	chosen := map[string]bool{}
	for i := range 100 {
		r := Request{Namespace: "metal3", Name: fmt.Sprint("m-", i), UID: fmt.Sprint("uid-", i), Selector: labels.Everything()}
		out := Choose(hosts, r)
		assert.Equal(t, out, Choose(hosts, r), "the same hosts and the same machine, another answer")
		chosen[out.Host] = true
	}
	assert.Greater(t, len(chosen), 40, "%v", maps.Keys(chosen))
}

func newRack(n int) []metal3api.BareMetalHost {
	hosts := make([]metal3api.BareMetalHost, n)
	for i := range hosts {
		hosts[i] = newHost(fmt.Sprintf("host-%04d", i), setLabel("rack", fmt.Sprint(i%10)))
	}
	return hosts
}

// BenchmarkHundredMachinesOfAThousandHosts is one choice for each of a hundred machines, each of a host of its own.
func BenchmarkHundredMachinesOfAThousandHosts(b *testing.B) {
	hosts := newRack(1000)
	bench.Run(b, "choice", func(context.Context) ([]bench.Row, error) {
		before, err := processorSeconds()
		if err != nil {
			return nil, err
		}
		taken := map[string]bool{}
		for i := range 100 {
			out := Choose(hosts, Request{
				Namespace: "metal3",
				Name:      fmt.Sprint("m-", i),
				UID:       fmt.Sprint("uid-", i),
				Selector:  labels.Everything(),
				Taken:     taken,
			})
			taken[out.Host] = true
		}
		if len(taken) != 100 {
			return nil, errors.New("a host was chosen twice")
		}

		after, err := processorSeconds()
		r := bench.Row{Name: "choice/100-of-1000", Unit: "s", Ours: after - before, Note: "processor time of this process, once"}
		return []bench.Row{r.Less("bar", 1, 1)}, err
	})
}

// processorSeconds are those of this process so far.
func processorSeconds() (float64, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds(), err
}

// A host that the site names for a cluster is for the machines of that cluster, and for no other's.
func TestAHostThatIsNamedForACluster(t *testing.T) {
	hosts := []metal3api.BareMetalHost{newHost("h", setLabel(label.Cluster, "edge"))}
	request := Request{Namespace: "metal3", Name: "m", Selector: labels.Everything()}
	out := Choose(hosts, request)
	assert.Empty(t, out.Host)
	assert.Equal(t, []Rejection{{Host: "h", Reason: ReasonNamed, Sentence: "is named by site.yaml for cluster edge"}}, out.Rejected)

	request.Cluster = "edge"
	assert.Equal(t, "h", Choose(hosts, request).Host)
}
