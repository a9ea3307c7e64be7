package clusterapi

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/jsonpath"
)

// history is every version of every object of a rack, as the API server wrote them. Revisions are those of its one
// etcd, and so they order objects of all kinds.
type history struct {
	t     *testing.T
	begin time.Time

	mu     sync.Mutex
	events []event
}

// event is an object as it was written.
type event struct {
	at       time.Time
	revision int
	kind     string // its resource
	name     string
	object   map[string]any // as it was last, if it is gone
	gone     bool
}

// watched are the kinds of a history, all of them but Nodes in one namespace.
var watched = []schema.GroupVersionResource{
	{Version: "v1", Resource: "nodes"},
	{Version: "v1", Resource: "secrets"},
	{Group: "metal3.io", Version: "v1alpha1", Resource: "baremetalhosts"},
	{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "clusters"},
	{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machines"},
	{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machinedeployments"},
	{Group: "controlplane.cluster.x-k8s.io", Version: "v1beta2", Resource: "kubeadmcontrolplanes"},
	{Group: "bootstrap.cluster.x-k8s.io", Version: "v1beta2", Resource: "kubeadmconfigs"},
	{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "metal3clusters"},
	{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "metal3machines"},
	{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "metal3datatemplates"},
	{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "metal3dataclaims"},
	{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "metal3datas"},
	{Group: "ipam.cluster.x-k8s.io", Version: "v1beta2", Resource: "ipaddressclaims"},
	{Group: "ipam.cluster.x-k8s.io", Version: "v1beta2", Resource: "ipaddresses"},
}

// record begins the history of a rack. It ends before the rack does.
func (r *rack) record() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	var wait sync.WaitGroup
	r.t.Cleanup(func() { cancel(); wait.Wait() })
	r.history = &history{t: r.t, begin: time.Now()}
	for _, kind := range watched {
		of := r.resource(kind.Resource)
		var all *unstructured.UnstructuredList
		r.until(kind.Resource+" are served", func() (err error) {
			all, err = of.List(ctx, metav1.ListOptions{})
			return err
		})
		for i := range all.Items {
			r.history.add(kind.Resource, &all.Items[i], watch.Added)
		}
		wait.Go(func() { r.history.follow(ctx, kind.Resource, of, all.GetResourceVersion()) })
	}
}

// resource is one of the watched kinds.
func (r *rack) resource(kind string) dynamic.ResourceInterface {
	i := slices.IndexFunc(watched, func(g schema.GroupVersionResource) bool { return g.Resource == kind })
	if kind == "nodes" {
		return r.dynamic.Resource(watched[i])
	}
	return r.dynamic.Resource(watched[i]).Namespace("metal3")
}

// follow keeps what comes after a revision. The API server ends a watch now and then; the next one begins where it ended.
func (h *history) follow(ctx context.Context, kind string, of dynamic.ResourceInterface, revision string) {
	for ctx.Err() == nil {
		w, err := of.Watch(ctx, metav1.ListOptions{ResourceVersion: revision})
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for e := range w.ResultChan() {
			u, ok := e.Object.(*unstructured.Unstructured)
			if ctx.Err() != nil {
				w.Stop()
				return
			}
			if !ok || e.Type == watch.Error {
				h.t.Errorf("watch of %s: %v", kind, e.Object)
				return
			}
			revision = u.GetResourceVersion()
			h.add(kind, u, e.Type)
		}
	}
}

func (h *history) add(kind string, u *unstructured.Unstructured, what watch.EventType) {
	revision, err := strconv.Atoi(u.GetResourceVersion())
	if err != nil {
		h.t.Errorf("%s %s: %v", kind, u.GetName(), err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{
		at:       time.Now(),
		revision: revision,
		kind:     kind,
		name:     u.GetName(),
		object:   u.Object,
		gone:     what == watch.Deleted,
	})
}

// ordered are all events so far, in the order of their revisions.
func (h *history) ordered() []event {
	h.mu.Lock()
	all := slices.Clone(h.events)
	h.mu.Unlock()
	slices.SortStableFunc(all, func(a, b event) int { return a.revision - b.revision })
	return all
}

func (e event) field(path string) string { return field(e.object, path) }

// field is what kubectl prints for a path of an object, "" if there is nothing.
func field(object map[string]any, path string) string {
	p := jsonpath.New(path).AllowMissingKeys(true)
	if err := p.Parse("{" + path + "}"); err != nil {
		panic(err) // of a literal
	}
	var out strings.Builder
	if p.Execute(&out, object) != nil {
		return ""
	}
	return out.String()
}

// fact is one that comes to hold: a field of an object matches an expression, or the object is gone.
type fact struct {
	step   string
	kind   string
	name   string
	path   string // gone: the object is no more
	want   string // an expression of the whole value
	before string // a step of which no fact may come first; "" says nothing
}

// gone is the path of a fact of an object that is no more.
const gone = "gone"

// held is a fact with the event from which on it held.
type held struct {
	fact
	event
	value string
}

// find is when a fact came to hold, after a revision. A host's fact holds only while the machine claims the host, if one
// is given.
func (f fact) find(all []event, after int, machine string) (held, bool) {
	want := regexp.MustCompile("^(?:" + f.want + ")$")
	for _, e := range all {
		if e.kind != f.kind || e.name != f.name || e.revision <= after || e.gone != (f.path == gone) {
			continue
		}
		if e.gone {
			return held{fact: f, event: e}, true
		}
		if machine != "" && e.kind == "baremetalhosts" && e.field(".spec.consumerRef.name") != machine {
			continue
		}
		if value := e.field(f.path); want.MatchString(value) {
			return held{fact: f, event: e, value: value}, true
		}
	}
	return held{}, false
}

// line is what held, and when.
func (h held) line(begin time.Time) string {
	what := fmt.Sprintf("%s = %s", h.path, h.value)
	if h.path == gone {
		what = gone
	}
	if len(what) > 110 {
		what = what[:107] + "..."
	}
	return fmt.Sprintf("%-9s %6.1f s  revision %4d  %s/%s: %s",
		h.step, h.at.Sub(begin).Seconds(), h.revision, h.fact.kind, h.fact.name, what)
}

// assertOrder checks that all facts came to hold, each before those that need it, and returns when.
func (h *history) assertOrder(facts []fact, after int, machine string) []held {
	h.t.Helper()
	all := h.ordered()
	var found []held
	for _, f := range facts {
		one, ok := f.find(all, after, machine)
		if !ok {
			h.t.Errorf("step %s never held: %s %s %s = %s", f.step, f.kind, f.name, f.path, f.want)
			continue
		}
		found = append(found, one)
	}

	for _, a := range found {
		for _, b := range found {
			if a.before == b.step && a.revision >= b.revision {
				h.t.Errorf("out of order:\n%s\n%s", b.line(h.begin), a.line(h.begin))
			}
		}
	}

	slices.SortStableFunc(found, func(a, b held) int { return a.revision - b.revision })
	return found
}

// print writes the facts as they came.
func (h *history) print(title string, found []held) {
	lines := make([]string, len(found))
	for i, one := range found {
		lines[i] = one.line(h.begin)
	}
	h.t.Logf("%s:\n%s", title, strings.Join(lines, "\n"))
}
