package operator

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/bpa/sizing"
)

// launchKind is the resource that says how far the nodes of the site are (docs/verify.md). Whoever writes it does not
// know clusters, so it is read here by its fields.
var launchKind = schema.GroupVersionKind{Group: "firstlight.dev", Version: "v1alpha1", Kind: "LaunchList"}

// launchState is what a proposal needs of the Launch.
type launchState struct {
	Nodes    int
	Verified int
	Held     []string // nodes that need a person
	Over     bool     // its time is up
}

// isSettled reports whether no node is on its way any more: what is not verified needs a person, or has had its time.
func (l launchState) isSettled() bool {
	return l.Nodes > 0 && (l.Verified+len(l.Held) == l.Nodes || l.Over)
}

// readLaunch reads the Launch; the zero value if there is none.
func readLaunch(ctx context.Context, api client.Reader) (launchState, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(launchKind)
	err := api.List(ctx, list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || runtime.IsNotRegisteredError(err) || err == nil && len(list.Items) == 0 {
		return launchState{}, nil
	}
	if err != nil {
		return launchState{}, fmt.Errorf("list Launches: %w", err)
	}

	var launch struct {
		Spec struct {
			Nodes   []string `json:"nodes"`
			Timeout string   `json:"timeout"`
		} `json:"spec"`
		Status struct {
			ElapsedSeconds int64 `json:"elapsedSeconds"`
			Nodes          []struct {
				Name        string `json:"name"`
				Verified    bool   `json:"proven"`
				NeedsPerson bool   `json:"needsPerson"`
			} `json:"nodes"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[0].Object, &launch); err != nil {
		return launchState{}, fmt.Errorf("read Launch %s: %w", list.Items[0].GetName(), err)
	}

	l := launchState{Nodes: len(launch.Spec.Nodes)}
	for _, n := range launch.Status.Nodes {
		switch {
		case n.Verified:
			l.Verified++
		case n.NeedsPerson:
			l.Held = append(l.Held, n.Name)
		}
	}

	limit, err := time.ParseDuration(launch.Spec.Timeout)
	l.Over = err == nil && time.Duration(launch.Status.ElapsedSeconds)*time.Second > limit
	return l, nil
}

// settledFor is how long nodes that need a person keep the others from becoming clusters: time to fix what is quickly
// fixed, and to read about it.
const settledFor = 30 * time.Minute

// proposalDue decides whether a proposal is to be applied, and says why not or without what. since is since when the
// launch has been settled, zero if it is not. It is pure.
//
// All nodes verified: at once. Else it is made of those that are verified, if these are more than half, once every other
// one has needed a person for half an hour, or the time of the launch is up.
func proposalDue(p sizing.Proposal, l launchState, since, now time.Time) (due bool, sentence string) {
	missing := l.Nodes - l.Verified
	switch held := strings.Join(l.Held, ", "); {
	case len(p.Provisionings) == 0:
		return false, "there is nothing to apply yet"
	case len(p.Waiting) == 0 && missing <= 0:
		return true, ""
	case !l.isSettled() || since.IsZero():
		return false, fmt.Sprintf("waits until all nodes are verified, %d of %d are", l.Verified, l.Nodes)
	case 2*l.Verified <= l.Nodes:
		return false, fmt.Sprintf("waits for a person: only %d of %d nodes are verified, more than half would do; held: %s",
			l.Verified, l.Nodes, held)
	case !l.Over && now.Sub(since) < settledFor:
		return false, fmt.Sprintf("is applied at %s without the nodes that need a person until then: %s",
			since.Add(settledFor).UTC().Format(time.RFC3339), held)
	}

	return true, fmt.Sprintf("applied without %d of %d nodes, which are not verified; a node that is fixed later can be "+
		"added as a worker", missing, l.Nodes)
}
