package bench_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// event is something that happened while a cluster was made. Objects say when to the second, nodes more exactly.
type event struct {
	at        time.Time
	who, what string
}

// span is a time of which a part may be left out.
type span struct{ from, to time.Time }

// unite joins spans that overlap, in order of time.
func unite(spans []span) (united []span) {
	for _, s := range slices.SortedFunc(slices.Values(spans), func(a, b span) int { return a.from.Compare(b.from) }) {
		if last := len(united) - 1; last >= 0 && !s.from.After(united[last].to) {
			if s.to.After(united[last].to) {
				united[last].to = s.to
			}
			continue
		}
		united = append(united, s)
	}
	return united
}

// sum is how much of the spans was before a time.
func sum(spans []span, before time.Time) (all time.Duration) {
	for _, s := range unite(spans) {
		if s.to.After(before) {
			s.to = before
		}
		all += max(0, s.to.Sub(s.from))
	}
	return all
}

// writeTimeline prints events in order: seconds since it began, the same without what is left out, and how long nothing
// was seen before.
func writeTimeline(began time.Time, leftOut []span, events []event) string {
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(a.at.Compare(b.at), strings.Compare(a.who, b.who), strings.Compare(a.what, b.what))
	})
	events = slices.CompactFunc(events, func(a, b event) bool { return a.at.Equal(b.at) && a.who == b.who && a.what == b.what })

	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SECOND\tCOUNTED\tAFTER\tWHO\tWHAT")
	last := 0.0
	for _, e := range events {
		counted := (e.at.Sub(began) - sum(leftOut, e.at)).Seconds()
		fmt.Fprintf(w, "%.1f\t%.1f\t%.1f\t%s\t%s\n", e.at.Sub(began).Seconds(), counted, counted-last, e.who, e.what)
		last = counted
	}
	w.Flush()
	return text.String()
}

// object is what is looked at of an object of any kind.
type object struct {
	Kind     string
	Metadata metav1.ObjectMeta
	Status   struct {
		Conditions        []metav1.Condition
		ContainerStatuses []struct {
			Name  string
			State struct {
				Running struct{ StartedAt metav1.Time }
			}
		}
		OperationHistory map[string]struct{ Start, End metav1.Time }
	}
}

// readEvents are the events of a list of objects as kubectl prints it: each was created, conditions became true, a host's
// operations and a pod's containers began.
func readEvents(list string, since time.Time) (events []event, err error) {
	var all struct{ Items []object }
	if err := json.Unmarshal([]byte(list), &all); err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}

	for _, o := range all.Items {
		add := func(at metav1.Time, what string) {
			if at.Time.After(since) {
				events = append(events, event{at.Time, o.Kind + " " + o.Metadata.Name, what})
			}
		}
		add(o.Metadata.CreationTimestamp, "created")
		for _, c := range o.Status.Conditions {
			if c.Status == metav1.ConditionTrue && (o.Kind != "Pod" && o.Kind != "Node" || c.Type == "Ready") {
				add(c.LastTransitionTime, c.Type)
			}
		}
		for _, c := range o.Status.ContainerStatuses {
			add(c.State.Running.StartedAt, "container "+c.Name+" runs")
		}
		for name, h := range o.Status.OperationHistory {
			add(h.Start, name+" begins")
			add(h.End, name+" ends")
		}
	}
	return events, nil
}

// stamp is a line of node-setup, or of a program that logs by slog.
var stamp = regexp.MustCompile(`(?m)^(?:node-setup (\S+) (.*)|time=(\S+) .*msg="([^"]*)".*)$`)

// readStamps are the events that a node logged.
func readStamps(who, log string) (events []event) {
	for _, m := range stamp.FindAllStringSubmatch(log, -1) {
		if at, err := time.Parse(time.RFC3339Nano, m[1]+m[3]); err == nil {
			events = append(events, event{at, who, m[2] + m[4]})
		}
	}
	return events
}

// steps are files whose time says how far cloud-init and kubeadm are.
var steps = []string{
	"/run/kubeadm/kubeadm.yaml", "/run/kubeadm/kubeadm-join-config.yaml", "/etc/kubernetes/manifests/kube-apiserver.yaml",
	"/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/pki/kubelet-client-current.pem",
	"/run/cluster-api/bootstrap-success.complete",
}

// readSteps are the events that those files of a node tell; path is where a file of the node is.
func readSteps(who string, path func(string) string) (events []event) {
	for _, step := range steps {
		if info, err := os.Lstat(path(step)); err == nil {
			events = append(events, event{info.ModTime(), who, step})
		}
	}
	return events
}

func TestTimeline(t *testing.T) {
	began := time.Date(2026, 11, 28, 1, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
	leftOut := []span{{at(20), at(30)}, {at(2), at(10)}, {at(4), at(12)}}
	assert.Equal(t, []span{{at(2), at(12)}, {at(20), at(30)}}, unite(leftOut))
	assert.Equal(t, 15*time.Second, sum(leftOut, at(25)))
	assert.Equal(t, 20*time.Second, sum(leftOut, at(40)))

	events, err := readEvents(`{"items": [
{"kind": "Machine", "metadata": {"name": "cp0", "creationTimestamp": "2026-11-28T01:00:01Z"}, "status": {"conditions": [
	{"type": "NodeReady", "status": "True", "lastTransitionTime": "2026-11-28T01:00:40Z"},
	{"type": "Deleting", "status": "False", "lastTransitionTime": "2026-11-28T01:00:01Z"}]}},
{"kind": "Pod", "metadata": {"name": "etcd", "creationTimestamp": "2026-11-28T00:59:59Z"}, "status": {
	"conditions": [{"type": "Initialized", "status": "True", "lastTransitionTime": "2026-11-28T01:00:01Z"}],
	"containerStatuses": [{"name": "etcd", "state": {"running": {"startedAt": "2026-11-28T01:00:31Z"}}}]}},
{"kind": "BareMetalHost", "metadata": {"name": "node-1"}, "status": {
	"operationHistory": {"provision": {"start": "2026-11-28T01:00:02Z", "end": null}}}}
]}`, began)
	require.NoError(t, err)
	events = append(events, readStamps("node-1", "Get:1 http://172.22.0.1\nnode-setup 2026-11-28T01:00:13.250Z packages are there\n"+
		`time=2026-11-28T01:00:33.500Z level=INFO msg="the endpoint's address is this node's" address=172.22.0.200`+"\n")...)

	file := filepath.Join(t.TempDir(), "kubeadm.yaml")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Chtimes(file, at(12.5), at(12.5)))
	events = append(events, readSteps("node-1", func(step string) string {
		return filepath.Join(filepath.Dir(file), filepath.Base(step))
	})...)
	assert.Equal(t, `SECOND  COUNTED  AFTER  WHO                   WHAT
1.0     1.0      1.0    Machine cp0           created
2.0     2.0      1.0    BareMetalHost node-1  provision begins
12.5    2.5      0.5    node-1                /run/kubeadm/kubeadm.yaml
13.2    3.2      0.8    node-1                packages are there
31.0    11.0     7.8    Pod etcd              container etcd runs
33.5    13.5     2.5    node-1                the endpoint's address is this node's
40.0    20.0     6.5    Machine cp0           NodeReady
`, writeTimeline(began, leftOut, events))

	_, err = readEvents("error: no", began)
	assert.Error(t, err)
}
