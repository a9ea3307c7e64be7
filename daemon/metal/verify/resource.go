package verify

import (
	"bytes"
	"context"
	_ "embed" // launch.yaml
	"encoding/json"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

//go:embed launch.yaml
var definition []byte

// Kind of the resource in which the launch is told: cluster-wide, named like the site.
var Kind = schema.GroupVersionKind{Group: "firstlight.dev", Version: "v1alpha1", Kind: "Launch"}

const (
	owner     = "firstlight-launch" // field manager
	labelSite = label.SiteName      // on every Launch: it is made from a site
)

// Conditions of a Launch. Whatever waits for the nodes waits for ConditionReady.
const (
	ConditionReady  = "Ready"  // every node is proven
	ConditionFailed = "Failed" // a node needs a person, or the time is up
)

// Spec is what is promised.
type Spec struct {
	Nodes   []string `json:"nodes"`
	Timeout string   `json:"timeout"`
}

// Outcome is how it stands.
type Outcome struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	State              status.LaunchState `json:"state,omitempty"`
	Message            string             `json:"message,omitempty"`
	Verified           string             `json:"proven,omitempty"` // "8/10"
	ElapsedSeconds     int64              `json:"elapsedSeconds"`
	Nodes              []NodeOutcome      `json:"nodes,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// NodeOutcome is how one node stands.
type NodeOutcome struct {
	Name     string `json:"name"`
	Verified bool   `json:"proven"`
	Rule     string `json:"situation,omitempty"` // of docs/why.md
	Message  string `json:"message,omitempty"`   // what stands in the way
	// NeedsPerson: nothing happens to it before someone has done something.
	NeedsPerson bool           `json:"needsPerson,omitempty"`
	Installed   string         `json:"installed,omitempty"` // what was proven: another installation must be proven anew
	Checks      []status.Check `json:"checks,omitempty"`
}

// LaunchSpec is the Launch of a site.
func LaunchSpec(s *site.Site) (name string, spec Spec) {
	spec = Spec{Nodes: []string{}, Timeout: s.Verification.Timeout.String()}
	for _, n := range s.Nodes {
		spec.Nodes = append(spec.Nodes, string(n.Name))
	}
	return string(s.Name), spec
}

// Stage is the fact that the launch is an object of the API, which whoever waits for all nodes can wait for.
func Stage(s func() *site.Site, api func() (client.Client, error)) bringup.Stage {
	stage := apply.Stage{
		Name:    "launch-declared",
		Title:   "The launch is declared",
		Fact:    "the API has the site's Launch: which nodes must be proven, and in what time",
		Why:     "It comes before the first node is handed over, because its time counts from then; whatever needs the nodes waits for its condition Ready.",
		Owner:   owner,
		API:     api,
		Doing:   "declaring the launch",
		Objects: func() ([]client.Object, error) { return launchObjects(s()) },
	}.Bringup()
	declare := stage.Do
	stage.Do = func(ctx context.Context, report bringup.Report) error {
		err := declare(ctx, report)
		switch {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			return bringup.Wait("the API to take up the new kind Launch")
		case err != nil:
			return err
		}

		c, err := api()
		if err != nil {
			return err
		}

		return removeOtherLaunches(ctx, c, string(s().Name))
	}
	return stage
}

// launchObjects are the definition of Launch, and the site's.
func launchObjects(s *site.Site) ([]client.Object, error) {
	crd, err := readDefinition()
	if err != nil {
		return nil, err
	}

	name, spec := LaunchSpec(s)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&struct {
		Spec Spec `json:"spec"`
	}{spec})
	if err != nil {
		return nil, fmt.Errorf("make Launch: %w", err)
	}

	launch := &unstructured.Unstructured{Object: content}
	launch.SetGroupVersionKind(Kind)
	launch.SetName(name)
	launch.SetLabels(map[string]string{labelSite: name})
	return []client.Object{crd.DeepCopy(), launch}, nil
}

// readDefinition reads the definition of Launch, once: its stage asks for it all the time.
var readDefinition = sync.OnceValues(func() (*unstructured.Unstructured, error) {
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(definition, &crd.Object); err != nil {
		return nil, fmt.Errorf("read the definition of Launch: %w", err)
	}
	return crd, nil
})

// removeOtherLaunches removes the Launches of a site that was called otherwise.
func removeOtherLaunches(ctx context.Context, c client.Client, name string) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(Kind)
	if err := c.List(ctx, list, client.HasLabels{labelSite}); err != nil {
		return fmt.Errorf("list Launches: %w", err)
	}

	for i := range list.Items {
		if list.Items[i].GetName() == name {
			continue
		}
		if err := c.Delete(ctx, &list.Items[i]); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove Launch %s: %w", list.Items[i].GetName(), err)
		}
	}

	return nil
}

// Store keeps the outcome in the API.
type Store struct {
	API func() (client.Client, error)
}

// Load reads a Launch. An absent one is an error.
func (s Store) Load(ctx context.Context, name string) (Spec, Outcome, error) {
	o, err := s.get(ctx, name)
	if err != nil {
		return Spec{}, Outcome{}, err
	}
	return decodeLaunch(o)
}

func decodeLaunch(o *unstructured.Unstructured) (Spec, Outcome, error) {
	var whole struct {
		Spec   Spec    `json:"spec"`
		Status Outcome `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &whole); err != nil {
		return Spec{}, Outcome{}, fmt.Errorf("read Launch %s: %w", o.GetName(), err)
	}

	if whole.Status.ObservedGeneration != o.GetGeneration() {
		whole.Status.ElapsedSeconds = 0 // something else was promised
	}

	return whole.Spec, whole.Status, nil
}

func (s Store) get(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	c, err := s.API()
	if err != nil {
		return nil, err
	}

	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(Kind)
	if err := c.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
		return nil, fmt.Errorf("read Launch %s: %w", name, err)
	}

	return o, nil
}

// Save writes the outcome of a Launch; conditions keep the time of their last change.
func (s Store) Save(ctx context.Context, name string, out Outcome) error {
	o, err := s.get(ctx, name)
	if err != nil {
		return err
	}

	_, before, err := decodeLaunch(o)
	if err != nil {
		return err
	}

	out.ObservedGeneration = o.GetGeneration()
	conditions := before.Conditions
	for _, c := range conditionsOf(out) {
		c.ObservedGeneration = out.ObservedGeneration
		meta.SetStatusCondition(&conditions, c)
	}

	out.Conditions = conditions
	was, _ := json.Marshal(before)
	is, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("encode Launch %s: %w", name, err)
	}
	if bytes.Equal(was, is) {
		return nil
	}

	var content map[string]any
	if err := json.Unmarshal(is, &content); err != nil {
		return fmt.Errorf("encode Launch %s: %w", name, err)
	}

	c, err := s.API()
	if err != nil {
		return err
	}

	o.Object["status"] = content
	if err := c.Status().Update(ctx, o, client.FieldOwner(owner)); err != nil {
		return fmt.Errorf("write status of Launch %s: %w", name, err)
	}

	return nil
}

// conditionsOf says the same in the words that kubectl wait and controllers know.
func conditionsOf(o Outcome) []metav1.Condition {
	reason := map[status.LaunchState]string{
		status.LaunchNothing: "NothingToLaunch", status.LaunchRunning: "Running", status.LaunchFailed: "NodesNotProven", status.LaunchSucceeded: "Launched",
	}[o.State]
	is := func(b bool) metav1.ConditionStatus {
		if b {
			return metav1.ConditionTrue
		}
		return metav1.ConditionFalse
	}
	return []metav1.Condition{
		{Type: ConditionReady, Status: is(o.State == status.LaunchSucceeded), Reason: reason, Message: o.Message},
		{Type: ConditionFailed, Status: is(o.State == status.LaunchFailed), Reason: reason, Message: o.Message},
	}
}
