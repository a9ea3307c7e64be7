package metal3

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/engine/apply"
)

// Reconciler hands nodes over and keeps what the site says of them applied.
type Reconciler struct {
	Client  client.Client
	Backups Backups
	Log     *slog.Logger

	// PreflightGate is asked before the first power action on a node, that is before its host is
	// created and before it is given its image; a host in service is never asked for. A no
	// comes with the reason. Nil: always yes.
	PreflightGate func(node string) (ok bool, reason string)
	// Contents is what the last inspection of a host found on its disks; nil if it found nothing out. See
	// Inspections.
	Contents func(ctx context.Context, h *metal3api.BareMetalHost) (Contents, error)
	// BootMode is how the last inspection of a host was started, for a host that does not say how it boots; "": as
	// Metal3 takes it for granted. Nil: nobody asks.
	BootMode func(ctx context.Context, h *metal3api.BareMetalHost) (metal3api.BootMode, error)
	// PermitWipe notes that the owner of a host has given up what is on its disk for an image, before AllowWipe is taken
	// off. Nil: nobody asks.
	PermitWipe func(h *metal3api.BareMetalHost, image string) error
	// Busy says what the appliance is doing with a host on its owner's behalf, for which it takes no step; "" if nothing.
	// Nil: it never does.
	Busy func(host string) (reason Reason, sentence string)
	// AgentsDue asks Ironic which of its nodes, by UUID, are to get no image yet because the agent that
	// has just inspected them did not call since. It is asked once in a round, and only if a host is to
	// get its image. Nil: none.
	AgentsDue func(ctx context.Context) (map[string]bool, error)
}

// Observe tells how each node stands, changing nothing.
func (s Reconciler) Observe(ctx context.Context, nodes []NodeObjects) ([]Progress, error) {
	return s.forEach(ctx, nodes, func(n NodeObjects, rec HostBackup, now snapshot) Progress {
		return s.next(ctx, n, rec, now)
	})
}

// Reconcile does the next step of every node, all at once, and tells how each stands. It
// may be cut off and called again at any time.
func (s Reconciler) Reconcile(ctx context.Context, nodes []NodeObjects) ([]Progress, error) {
	return s.forEach(ctx, nodes, func(n NodeObjects, rec HostBackup, now snapshot) Progress {
		p := s.next(ctx, n, rec, now)
		if p.Err != nil || p.isOfAnotherServer() {
			return p
		}

		p.Err = s.act(ctx, p.Step, n, rec, now)
		if p.Err == nil && (p.Step == StepRestore || p.Step == StepResume || p.Step == StepForget ||
			p.Step == StepImage) {
			s.Log.Info("node handed over", "node", p.Node, "step", string(p.Step))
		}

		return p
	})
}

// minInterval is the shortest time from one round to the next. While many hosts are installed, one of them
// changes all the time.
const minInterval = time.Second

// pacePerHost is what each host adds to the shortest time from one round to the next, where there are more than
// a hundred: a round takes a fraction of a millisecond of processor time for each, here and in the API server.
const pacePerHost = 10 * time.Millisecond

// Run reconciles whenever a host changed, and every half minute, until ctx ends. No host changes when
// an agent calls, so while one is due the next round comes at once. seen gets how the nodes stand after
// each round.
func (s Reconciler) Run(
	ctx context.Context,
	changed <-chan struct{},
	nodes func() ([]NodeObjects, error),
	seen func([]Progress),
) error {
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		began, due := time.Now(), make(<-chan time.Time)
		wanted, err := nodes()
		rest := time.After(time.Until(began.Add(max(minInterval, time.Duration(len(wanted))*pacePerHost))))
		if err != nil {
			s.Log.Error("site cannot be handed over", "error", err)
		} else if all, err := s.Reconcile(ctx, wanted); err != nil {
			s.Log.Error("site cannot be handed over", "error", err)
		} else {
			seen(all)
			if slices.ContainsFunc(all, func(p Progress) bool { return p.Step == StepAgent }) {
				due = rest
			}
		}

		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		case <-due:
			continue
		}

		select {
		case <-ctx.Done():
			return nil
		case <-rest:
		}
	}
}

// snapshot is what the API has when a round begins: two requests, however many hosts there are.
type snapshot struct {
	hosts   map[string]*metal3api.BareMetalHost // by name
	secrets map[string]string                   // by name: the digest of what was applied last
	due     func() (map[string]bool, error)     // Site.AgentsDue, asked at most once
}

func (s Reconciler) takeSnapshot(ctx context.Context) (snapshot, error) {
	now := snapshot{hosts: map[string]*metal3api.BareMetalHost{}, secrets: map[string]string{},
		due: sync.OnceValues(func() (map[string]bool, error) { return s.AgentsDue(ctx) })}
	var hosts metal3api.BareMetalHostList
	if err := s.Client.List(ctx, &hosts, client.InNamespace(Namespace)); err != nil {
		return now, fmt.Errorf("list hosts: %w", err)
	}

	for i := range hosts.Items {
		now.hosts[hosts.Items[i].Name] = &hosts.Items[i]
	}

	var secrets metav1.PartialObjectMetadataList // what is in them is not needed
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := s.Client.List(ctx, &secrets, client.InNamespace(Namespace)); err != nil {
		return now, fmt.Errorf("list secrets: %w", err)
	}

	for i := range secrets.Items {
		now.secrets[secrets.Items[i].Name] = secrets.Items[i].Annotations[apply.Annotation]
	}

	return now, nil
}

// appliedDigest is the digest of what was applied last to an object, "" if it is not there.
func (p snapshot) appliedDigest(kind, name string) string {
	if kind == "Secret" {
		return p.secrets[name]
	}
	if h := p.hosts[name]; h != nil {
		return h.Annotations[apply.Annotation]
	}
	return ""
}

func (s Reconciler) forEach(
	ctx context.Context,
	nodes []NodeObjects,
	do func(NodeObjects, HostBackup, snapshot) Progress,
) ([]Progress, error) {
	records, err := s.Backups.Read()
	if err != nil {
		return nil, err
	}

	now, err := s.takeSnapshot(ctx)
	if err != nil {
		return nil, err
	}

	out := make([]Progress, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { out[i] = do(n, records[n.Host.Name], now) })
	}

	wg.Wait()
	return out, nil
}

// next decides.
func (s Reconciler) next(ctx context.Context, n NodeObjects, rec HostBackup, now snapshot) Progress {
	have := now.hosts[n.Host.Name] // nil if there is none
	p := Progress{Node: n.Host.Name}
	if s.Busy != nil {
		if reason, sentence := s.Busy(n.Host.Name); sentence != "" {
			p.Decision = waitFor(reason, "it %s", sentence)
			return p
		}
	}
	var found Contents
	var err error
	if idle := withoutHold(have); idle != nil && idle.Spec.Image == nil && idle.Status.HardwareDetails != nil &&
		isIdle(idle.Status.Provisioning.State) {
		if found, err = s.Contents(ctx, have); err != nil {
			p.Err = fmt.Errorf("ask what is on the disks of %s: %w", p.Node, err)
			return p
		}
	}

	p.Decision = decide(n, have, rec, found)
	if s.PreflightGate != nil && (p.Step == StepCreate || p.Step == StepRegister || p.Step == StepImage) {
		if ok, reason := s.PreflightGate(p.Node); !ok {
			p.Decision = Decision{Step: StepPreflight, Sentence: reason}
		}
	}

	if s.AgentsDue != nil && p.Step == StepImage {
		due, err := now.due()
		if err != nil {
			p.Err = fmt.Errorf("ask for the agent of %s: %w", p.Node, err)
		} else if due[have.Status.Provisioning.ID] {
			p.Decision = Decision{Step: StepAgent, Sentence: "the agent that inspected it has not called Ironic yet"}
		}
	}

	return p
}

func (s Reconciler) act(ctx context.Context, step Step, n NodeObjects, rec HostBackup, now snapshot) error {
	have := now.hosts[n.Host.Name]
	if step == StepPreflight || step == StepAgent {
		if have == nil || n.BMC == nil || n.Applied {
			return nil
		}
		return s.applyChanged(ctx, now, n.BMC) // Ironic asks the BMC of a host that waits, too
	}

	// Secrets first: a host whose credentials are missing is an error on the host.
	var secrets []client.Object
	for _, secret := range []*corev1.Secret{n.User, n.Network, n.Meta, n.BMC} {
		if secret != nil && (!n.Applied || secret != n.BMC || step == StepRestore) {
			secrets = append(secrets, secret)
		}
	}

	if err := s.applyChanged(ctx, now, secrets...); err != nil {
		return err
	}

	if image := imageURL(n.Host.Spec.Image); s.PermitWipe != nil && have != nil && allowsWipe(have, image) &&
		(step == StepImage || step == StepApply) {
		if err := s.PermitWipe(have, image); err != nil {
			return err
		}
	}

	if n.Applied && step != StepRestore && step != StepResume && step != StepForget || step == StepRelease {
		if err := s.patchApplied(ctx, step, n, have); err != nil || step != StepImage {
			return err
		}
		return s.spendConsent(ctx, n.Host, have)
	}

	switch step {
	case StepRegister: // someone applied a host of that name before
		if err := s.applyChanged(ctx, now, ObjectForStep(StepCreate, n.Host, nil)); err != nil {
			return err
		}
		return s.patchApplied(ctx, step, n, have)
	case StepCreate, StepImage, StepApply:
		if err := s.applyChanged(ctx, now, ObjectForStep(step, n.Host, have)); err != nil {
			return err
		}
		if step == StepImage && IsOnHold(have) {
			if err := s.patchApplied(ctx, StepRelease, n, have); err != nil {
				return err
			}
		}
		return s.spendConsent(ctx, n.Host, have)
	case StepRestore:
		h, err := RestoredHost(rec)
		if err != nil {
			return err
		}
		if err := s.Client.Create(
			ctx, h, client.FieldOwner(FieldManager),
		); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("restore host %s: %w", n.Host.Name, err)
		}
		if err := s.writeStatus(ctx, rec); err != nil {
			return fmt.Errorf("restore host %s: %w", n.Host.Name, err)
		}
	case StepForget:
		return s.forget(ctx, have)
	case StepResume:
		patch := []byte(`{"metadata":{"annotations":{"` + annotationPaused + `":null,"` + annotationStatus + `":null}}}`)
		if err := s.Client.Patch(ctx, have, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return fmt.Errorf("resume host %s: %w", n.Host.Name, err)
		}
	}

	return nil
}

// spendConsent takes AllowWipe off a host that has got the image it was for.
func (s Reconciler) spendConsent(ctx context.Context, want, have *metal3api.BareMetalHost) error {
	if have == nil || !allowsWipe(have, imageURL(want.Spec.Image)) {
		return nil
	}

	patch := []byte(`{"metadata":{"annotations":{"` + AllowWipe + `":null}}}`)
	if err := s.Client.Patch(ctx, have, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("spend the consent of host %s: %w", have.Name, err)
	}

	return nil
}

// writeStatus writes the status of a host that was just restored. The operator would take it from the
// annotation, but it looks at no annotation of a paused host; and the host stays paused until the API
// shows it as it was.
func (s Reconciler) writeStatus(ctx context.Context, rec HostBackup) error {
	h := &metal3api.BareMetalHost{}
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(&rec.Host), h); err != nil {
		return err
	}
	if h.Annotations[annotationPaused] != pausedBy || h.Status.Provisioning.State != metal3api.StateNone {
		return nil
	}

	h.Status = *rec.Host.Status.DeepCopy()
	return s.Client.Status().Update(ctx, h)
}

// applyChanged applies what is not as it was applied last.
func (s Reconciler) applyChanged(ctx context.Context, now snapshot, objects ...client.Object) error {
	set, err := apply.New(FieldManager, objects...)
	if err != nil {
		return err
	}

	for _, o := range set.Objects {
		if now.appliedDigest(o.GetKind(), o.GetName()) != o.GetAnnotations()[apply.Annotation] {
			return set.Apply(ctx, s.Client)
		}
	}

	return nil
}
