package metal3

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/apply"
)

// Site hands nodes over and keeps what the site says of them applied.
type Site struct {
	Client  client.Client
	Records Records
	Log     *slog.Logger

	// Gate is asked before the first power action on a node, that is before its host is
	// created and before it is given its image; a host in service is never asked for. A no
	// comes with the reason. Nil: always yes.
	Gate func(node string) (ok bool, reason string)
	// Contents asks Ironic what the inspection of one of its nodes found on the disks; nil
	// if it found nothing out.
	Contents func(ctx context.Context, node string) (Contents, error)
}

// Progress is how far the hand-over of one node is.
type Progress struct {
	Node     string
	Step     Step
	Sentence string // what is waited for or held back
	Err      error  // of the last try
}

// Look tells how each node stands, changing nothing.
func (s Site) Look(ctx context.Context, nodes []Handover) ([]Progress, error) {
	return s.each(nodes, func(n Handover, rec Record) Progress {
		_, p := s.next(ctx, n, rec)
		return p
	})
}

// Reconcile does the next step of every node, all at once, and tells how each stands. It
// may be cut off and called again at any time.
func (s Site) Reconcile(ctx context.Context, nodes []Handover) ([]Progress, error) {
	return s.each(nodes, func(n Handover, rec Record) Progress {
		have, p := s.next(ctx, n, rec)
		if p.Err != nil {
			return p
		}
		p.Err = s.act(ctx, p.Step, n, have, rec)
		if p.Err == nil && (p.Step == StepRestore || p.Step == StepResume || p.Step == StepImage) {
			s.Log.Info("node handed over", "node", p.Node, "step", string(p.Step))
		}
		return p
	})
}

// Run reconciles whenever a host changed, and every half minute, until ctx ends. seen gets
// how the nodes stand after each round.
func (s Site) Run(ctx context.Context, changed <-chan struct{}, nodes func() ([]Handover, error), seen func([]Progress)) error {
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		wanted, err := nodes()
		if err != nil {
			s.Log.Error("site cannot be handed over", "error", err)
		} else if all, err := s.Reconcile(ctx, wanted); err != nil {
			s.Log.Error("site cannot be handed over", "error", err)
		} else {
			seen(all)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

func (s Site) each(nodes []Handover, do func(Handover, Record) Progress) ([]Progress, error) {
	records, err := s.Records.Read()
	if err != nil {
		return nil, err
	}
	out := make([]Progress, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { out[i] = do(n, records[n.Host.Name]) })
	}
	wg.Wait()
	return out, nil
}

// next reads the node's host, nil if there is none, and decides.
func (s Site) next(ctx context.Context, n Handover, rec Record) (*metal3api.BareMetalHost, Progress) {
	p := Progress{Node: n.Host.Name}
	have := &metal3api.BareMetalHost{}
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(n.Host), have)
	switch {
	case apierrors.IsNotFound(err):
		have = nil
	case err != nil:
		p.Err = fmt.Errorf("read host %s: %w", p.Node, err)
		return nil, p
	}
	var found Contents
	if have != nil && have.Spec.Image == nil && have.Status.HardwareDetails != nil {
		if found, err = s.Contents(ctx, have.Status.Provisioning.ID); err != nil {
			p.Err = fmt.Errorf("ask what is on the disks of %s: %w", p.Node, err)
			return have, p
		}
	}
	p.Step, p.Sentence = Next(n, have, rec, found)
	if s.Gate != nil && (p.Step == StepCreate || p.Step == StepImage) {
		if ok, reason := s.Gate(p.Node); !ok {
			p.Step, p.Sentence = StepPreflight, reason
		}
	}
	return have, p
}

func (s Site) act(ctx context.Context, step Step, n Handover, have *metal3api.BareMetalHost, rec Record) error {
	if step == StepPreflight {
		return nil
	}
	// Secrets first: a host whose credentials are missing is an error on the host.
	secrets := []client.Object{n.User, n.Network}
	if n.BMC != nil {
		secrets = append(secrets, n.BMC)
	}
	if err := s.keep(ctx, secrets...); err != nil {
		return err
	}
	switch step {
	case StepCreate, StepImage, StepApply:
		return s.keep(ctx, Shape(step, n.Host, have))
	case StepRestore:
		h, err := Restore(rec)
		if err != nil {
			return err
		}
		if err := s.Client.Create(ctx, h, client.FieldOwner(FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("restore host %s: %w", n.Host.Name, err)
		}
		if err := s.remember(ctx, rec); err != nil {
			return fmt.Errorf("restore host %s: %w", n.Host.Name, err)
		}
	case StepResume:
		patch := []byte(`{"metadata":{"annotations":{"` + annotationPaused + `":null,"` + annotationStatus + `":null}}}`)
		if err := s.Client.Patch(ctx, have, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return fmt.Errorf("resume host %s: %w", n.Host.Name, err)
		}
	}
	return nil
}

// remember writes the status of a host that was just restored. The operator would take it from the
// annotation, but it looks at no annotation of a paused host; and the host stays paused until the API
// shows it as it was.
func (s Site) remember(ctx context.Context, rec Record) error {
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

// keep applies what is not current.
func (s Site) keep(ctx context.Context, objects ...client.Object) error {
	set, err := apply.New(FieldManager, objects...)
	if err != nil {
		return err
	}
	if set.Current(ctx, s.Client) == nil {
		return nil
	}
	return set.Apply(ctx, s.Client)
}

// Removed are the hosts of the API that came from the site and are not in it any more. They
// are reported, never touched: a line deleted from a file is not an order to wipe a server.
func Removed(hosts []metal3api.BareMetalHost, nodes []Handover) []string {
	in := map[string]bool{}
	for _, n := range nodes {
		in[n.Host.Name] = true
	}
	var out []string
	for i := range hosts {
		if _, ours := hosts[i].Labels[LabelSite]; ours && !in[hosts[i].Name] {
			out = append(out, hosts[i].Name)
		}
	}
	return out
}

// Errors joins what went wrong, one sentence per node.
func Errors(all []Progress) error {
	var errs []error
	for _, p := range all {
		if p.Err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", p.Node, p.Err))
		}
	}
	return errors.Join(errs...)
}
