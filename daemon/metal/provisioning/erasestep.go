package provisioning

import (
	"context"
	"errors"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
)

// EraseHosts takes every erasure from step to step until ctx ends.
func (p *Provisioner) EraseHosts(ctx context.Context, up func() bool) error {
	read := func(ctx context.Context, name string) (*metal3api.BareMetalHost, error) {
		_, h, err := p.readHost(ctx, name)
		return h, err
	}
	add := func(ctx context.Context) error { return p.beginLost(ctx, read) }
	return followLedger(ctx, p, up, p.erasures, add, p.eraseNext)
}

// beginLost finds hosts that are paused to be erased, and of which no erasure is open: DATA was lost, or their objects
// are copies of such. An entry without disks has Ironic's nodes brought back, and the pauses taken off. read asks the API
// for a host.
func (p *Provisioner) beginLost(
	ctx context.Context, read func(ctx context.Context, name string) (*metal3api.BareMetalHost, error),
) error {
	hosts, _ := p.Hosts.List()
	for _, h := range hosts {
		if !metal3.IsErasing(&h) {
			continue
		}
		// A record that cannot be read may be of an erasure that goes on. What is to be done with it, the node says.
		if last, err := p.erasures.Last(h.Name); err != nil || last.IsOpen() {
			continue
		}
		// The erasure may have ended since the watch said this.
		now, err := read(ctx, h.Name)
		if err != nil {
			return err
		}
		if now == nil || !metal3.IsErasing(now) {
			continue
		}
		lost := metal3.Erasure{Host: string(now.UID), Asked: time.Now().UTC(), Lost: true}
		if err := p.erasures.Begin(h.Name, lost); err != nil {
			return err
		}
		p.Log.Warn("host is paused to be erased, and the record of that is lost", "node", h.Name)
		p.Recheck()
	}
	return nil
}

// eraseNext does the next step of one erasure. Its host is read from the API itself: what the watch said last may be
// older than the pause.
func (p *Provisioner) eraseNext(ctx context.Context, name string, e metal3.Erasure) error {
	api, h, err := p.readHost(ctx, name)
	if err != nil {
		return err
	}

	var node *metal3.EraseNode
	id := ""
	if h != nil {
		id = h.Status.Provisioning.ID
	}
	if id != "" {
		found, err := p.api.Node(ctx, id)
		if err != nil {
			return err
		}
		node = eraseNodeOf(found)
		if node != nil {
			called := fact.IronicNodes([]nodes.Node{*found})[name].Heartbeat
			p.watchAgent(ctx, api, h, e, found, called, node)
		}
	}

	step, sentence := metal3.NextErase(e, h, node)
	waits := ""
	if step == metal3.EraseWait {
		waits = node.Waits()
	}
	if waits != e.Waits {
		if err := p.erasures.Edit(name, func(e *metal3.Erasure) error { e.Waits = waits; return nil }); err != nil {
			return err
		}
		p.Recheck()
	}
	if step != metal3.EraseWait {
		p.Log.Info("erasure", "node", name, "step", string(step), "why", sentence)
	}
	return p.doErase(ctx, api, name, h, id, step, sentence)
}

func eraseNodeOf(n *nodes.Node) *metal3.EraseNode {
	if n == nil {
		return nil
	}
	return &metal3.EraseNode{
		State:        n.ProvisionState,
		LastError:    apply.RedactIronicError(n.LastError),
		Maintenance:  n.Maintenance,
		Cleans:       n.AutomatedClean == nil || *n.AutomatedClean,
		Unregistered: !isRegistered(n),
	}
}

func (p *Provisioner) doErase(
	ctx context.Context, api client.Client, name string, h *metal3api.BareMetalHost, id string,
	step metal3.EraseStep, sentence string,
) error {
	patch := func(change metal3.Patch) error { return patchHost(ctx, api, h, change) }
	switch step {
	case metal3.ErasePause:
		return patch(metal3.PausePatch(h))
	case metal3.EraseResume:
		return patch(metal3.ReleasePatch(h, false))
	case metal3.EraseManage:
		return p.api.Manage(ctx, id)
	case metal3.EraseProtect:
		return p.api.Protect(ctx, id)
	case metal3.EraseProvide:
		return p.api.Provide(ctx, id)
	case metal3.EraseAbort:
		if err := p.erasures.Edit(name, func(e *metal3.Erasure) error { e.Aborted = sentence; return nil }); err != nil {
			return err
		}
		return p.api.Abort(ctx, id)
	case metal3.EraseClean:
		var rest []metal3.WriteDisk
		err := p.erasures.Edit(name, func(e *metal3.Erasure) error {
			e.Tries++
			e.Started, e.Aborted = time.Now().UTC(), ""
			rest = e.Rest()
			return nil
		})
		if err != nil {
			return err
		}
		if err := p.api.EraseDisks(ctx, id, rest); err != nil {
			return errors.Join(err, p.erasures.Edit(name, func(e *metal3.Erasure) error {
				e.Failure = err.Error()
				if !isRefusal(err) {
					e.Tries-- // no server was started
				}
				return nil
			}))
		}
		return nil
	case metal3.EraseRecover:
		if sentence != "" {
			if err := p.erasures.Edit(name, func(e *metal3.Erasure) error { e.Failure = sentence; return nil }); err != nil {
				return err
			}
		}
		if err := p.api.EndMaintenance(ctx, id); err != nil {
			return err
		}
		if sentence == "" {
			return nil // it is manageable already
		}
		return p.api.Manage(ctx, id)
	case metal3.EraseRelease:
		if err := patch(metal3.ReleasePatch(h, h.DeletionTimestamp == nil)); err != nil {
			return err
		}
		return p.endErasure(name, sentence)
	case metal3.EraseEnd:
		if h != nil && metal3.IsErasing(h) { // nobody else would take it off
			if err := patch(metal3.ReleasePatch(h, false)); err != nil {
				return err
			}
		}
		return p.endErasure(name, sentence)
	}
	return nil
}

// endErasure keeps the record of an erasure, and tells the host how it ended.
func (p *Provisioner) endErasure(name, sentence string) error {
	var ended metal3.Erasure
	err := p.erasures.Edit(name, func(e *metal3.Erasure) error {
		switch {
		case len(e.Rest()) == 0, !e.Cancelled.IsZero():
			e.Failure = ""
		case e.Refused != "":
			e.Failure = e.Refused
		case sentence != "":
			e.Failure = sentence
		case e.Failure == "":
			e.Failure = "somebody gave it work meanwhile"
		}
		e.Ended, e.Waits = time.Now().UTC(), ""
		ended = *e
		return nil
	})
	if err != nil {
		return err
	}

	p.powers.forget(name)
	reason := "Erased"
	switch {
	case ended.Lost || ended.HasFailed():
		reason = "EraseFailed"
	case !ended.Cancelled.IsZero():
		reason = "EraseCancelled"
	}
	p.Log.Info("erasure ended", "node", name, "result", ended.Sentence())
	p.addOwnerEvent(name, reason, "it "+ended.Sentence())
	p.Recheck()
	return nil
}
