package metal3

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const operatorOwner = "firstlight-metal3" // field manager

// OperatorStage is the fact that the baremetal-operator runs as it ought to.
func OperatorStage(operator func() (Operator, error), api func() (client.Client, error)) bringup.Stage {
	return apply.Stage{
		Name:  "metal3-ready",
		Title: "The servers' operator starts",
		Fact:  "the baremetal-operator runs and its webhook answers",
		Why:   "It turns BareMetalHosts into what Ironic does. It starts while Ironic does, and asks for it every two seconds.",
		Owner: operatorOwner,
		API:   api,
		Doing: "applying the operator",
		Objects: func() ([]client.Object, error) {
			o, err := operator()
			if err != nil {
				return nil, err
			}
			return o.Objects()
		},
		Ready: func(ctx context.Context, c client.Client) error {
			return apply.CheckRolledOut(
				ctx, c, client.ObjectKey{Namespace: Namespace, Name: OperatorName}, "the operator's pod",
			)
		},
	}.Bringup()
}

// GuardStage is the fact that the API server itself protects hosts in service.
func GuardStage(guard func() (Guard, error), api func() (client.Client, error)) bringup.Stage {
	var held atomic.Bool
	return apply.Stage{
		Name:  "hosts-guarded",
		Title: "Servers in service are protected",
		Fact:  "the API server refuses what would erase a host in service, or delete it",
		Why:   "It comes before the first host is handed over, and holds for everybody, also while the daemon is down.",
		Owner: operatorOwner,
		API:   api,
		Doing: "applying the admission policy",
		Objects: func() ([]client.Object, error) {
			g, err := guard()
			if err != nil {
				return nil, err
			}
			return g.Objects(), nil
		},
		Ready: func(ctx context.Context, c client.Client) error {
			if held.Load() {
				return nil
			}
			if err := checkHold(ctx, c); err != nil {
				return err
			}

			held.Store(true)
			return nil
		},
	}.Bringup()
}

// checkHold asks the API server, without making anything, whether it holds a host that someone applies. For some
// seconds after a policy came it refuses hosts instead, and who applies one then would have to try again.
func checkHold(ctx context.Context, c client.Client) error {
	h := &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "hold-probe"}}
	if err := c.Create(ctx, h, client.DryRunAll); err != nil {
		return bringup.Wait("the API server to take hosts: %v", err)
	}
	if _, ok := h.Annotations[annotationPaused]; !ok {
		return bringup.Wait("the API server to hold hosts that someone applies")
	}

	return nil
}

// RegistrationStage is the fact that every node of the site is a host of the API. Whether it is
// inspected, installed and proven is told per node; the plan does not wait for hardware.
func RegistrationStage(nodes func() ([]NodeObjects, error), site func() (Reconciler, error)) bringup.Stage {
	each := func(ctx context.Context, do func(Reconciler, context.Context, []NodeObjects) ([]Progress, error)) ([]Progress, error) {
		wanted, err := nodes()
		if err != nil {
			return nil, err // keys, digests, NICs: a full disk or a bad read passes; what a node lacks is told per node
		}

		s, err := site()
		if err != nil {
			return nil, err
		}

		return do(s, ctx, wanted)
	}
	return bringup.Stage{
		Name:    "site-handed-over",
		Title:   "The site's servers are handed over",
		Fact:    "every node of the site that passed its pre-flight is a BareMetalHost, with its credentials and configuration",
		Why:     "From here on Metal3's controllers own the nodes; the daemon only does each node's next step.",
		Recheck: 30 * time.Second,
		Done: func(ctx context.Context) error {
			all, err := each(ctx, Reconciler.Observe)
			if err != nil {
				return err
			}

			var missing []string
			for _, p := range all {
				if p.Step == StepCreate || p.Step == StepRestore {
					missing = append(missing, p.Node)
				}
			}

			if len(missing) > 0 {
				return fmt.Errorf("no host yet: %s", strings.Join(missing, ", "))
			}

			return JoinErrors(all)
		},
		Do: func(ctx context.Context, report bringup.Report) error {
			report("creating hosts")
			all, err := each(ctx, Reconciler.Reconcile)
			if err != nil {
				return err
			}

			return JoinErrors(all)
		},
	}
}
