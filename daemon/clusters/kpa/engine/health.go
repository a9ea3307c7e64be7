package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// Health is how the objects of a Component stand.
type Health struct {
	Ready, All int
	Failed     []string // that will not become ready, each with why
	Waiting    []string
	Missing    []string // that were written and are not there
}

// Objects is the share of those that are ready: 3/5.
func (h Health) Objects() string { return fmt.Sprintf("%d/%d", h.Ready, h.All) }

// Verdict is nil if all are ready.
func (h Health) Verdict() *plan.Verdict {
	switch {
	case len(h.Failed) > 0:
		return &plan.Verdict{Phase: v1alpha1.PhaseFailed, Reason: plan.ReasonObjectFailed, Message: join(h.Failed)}
	case len(h.Missing) > 0:
		return &plan.Verdict{
			Phase: v1alpha1.PhaseHealth, Reason: plan.ReasonNotHealthy, Message: join(h.Missing) + ": not there",
		}
	case len(h.Waiting) > 0:
		return &plan.Verdict{Phase: v1alpha1.PhaseHealth, Reason: plan.ReasonNotHealthy, Message: join(h.Waiting)}
	}
	return nil
}

// Check looks at everything that a Component has on the target, by its inventory.
func (t *Target) Check(ctx context.Context, id ID) (Health, error) {
	known, err := t.readRecord(ctx, id)
	if err != nil {
		return Health{}, err
	}

	h := Health{All: len(known.objects)}
	for _, e := range known.objects {
		o := e.object()
		err := t.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		switch {
		case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
			h.Missing = append(h.Missing, describe(e.object()))
			continue
		case err != nil:
			return h, fmt.Errorf("read %s: %w", describe(e.object()), err)
		}

		s, err := status.Compute(o)
		switch {
		case err != nil:
			h.Waiting = append(h.Waiting, describe(o)+": its status cannot be read: "+err.Error())
		case s.Status == status.CurrentStatus:
			h.Ready++
		case s.Status == status.FailedStatus:
			h.Failed = append(h.Failed, describe(o)+": "+t.explain(ctx, o, s.Message))
		default:
			h.Waiting = append(h.Waiting, describe(o)+": "+t.explain(ctx, o, s.Message))
		}
	}

	return h, nil
}

// explain adds to a sentence about a workload what its pods say, such as that an image cannot be pulled.
func (t *Target) explain(ctx context.Context, o *unstructured.Unstructured, text string) string {
	selector, _, _ := unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels")
	if len(selector) == 0 {
		return text
	}

	pods := &unstructured.UnstructuredList{}
	pods.SetAPIVersion("v1")
	pods.SetKind("PodList")
	err := t.client.List(
		ctx, pods, client.InNamespace(o.GetNamespace()), client.MatchingLabels(selector), client.Limit(20),
	)
	if err != nil {
		return text
	}
	for _, p := range pods.Items {
		if why := explainPod(p); why != "" {
			return text + "; pod " + p.GetName() + ": " + why
		}
	}

	return text
}

// explainPod is why a pod does not run; "" if it does not say.
func explainPod(p unstructured.Unstructured) string {
	for _, field := range []string{"initContainerStatuses", "containerStatuses"} {
		containers, _, _ := unstructured.NestedSlice(p.Object, "status", field)
		for _, c := range containers {
			container, ok := c.(map[string]any)
			if !ok {
				continue
			}
			reason, _, _ := unstructured.NestedString(container, "state", "waiting", "reason")
			message, _, _ := unstructured.NestedString(container, "state", "waiting", "message")
			if reason != "" && reason != "ContainerCreating" && reason != "PodInitializing" {
				return strings.TrimSpace(reason + " " + message)
			}
			if code, _, _ := unstructured.NestedInt64(container, "state", "terminated", "exitCode"); code != 0 {
				message, _, _ := unstructured.NestedString(container, "state", "terminated", "message")
				return strings.TrimSpace(fmt.Sprintf("%v ended with exit code %d %s", container["name"], code, message))
			}
		}
	}

	conditions, _, _ := unstructured.NestedSlice(p.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["reason"] == "Unschedulable" {
			return fmt.Sprintf("Unschedulable %v", condition["message"])
		}
	}

	return ""
}
