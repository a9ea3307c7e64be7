package provisioning

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/agentgate"
	"firstlight.dev/firstlight/daemon/metal/metal3"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
)

// erasureDir is next to the records of hosts, so that away copies have it.
const erasureDir = backupDir + "/erased"

// ledgerInterval is the time between two steps of what the owner of a host asked for.
const ledgerInterval = 3 * time.Second

// Erase has disks of a node erased: those that are named by serial number, WWN or device name, and no other; without
// names its root device. Without confirm, which is the name of the node, nothing is begun: the answer says what would
// be erased. The error is for people.
func (p *Provisioner) Erase(ctx context.Context, node string, disks []string, confirm string) (status.Erase, error) {
	hosts, current := p.Hosts.List()
	if !current {
		return status.Erase{}, errors.New("the appliance is still starting and does not know its hosts yet; try again when firstlightd status says that it is ready")
	}
	if confirm != "" && confirm != node {
		return status.Erase{}, fmt.Errorf("%s is confirmed, not %s: nothing is erased", confirm, node)
	}

	request, err := p.eraseRequest(ctx, node, hosts)
	if err != nil {
		return status.Erase{}, fmt.Errorf("%s is not erased: %w", node, err)
	}
	request.Names = disks
	chosen, err := metal3.CheckErase(request)
	if err != nil {
		return status.Erase{}, fmt.Errorf("%s is not erased: %w", node, err)
	}

	answer := describeErase(request.Host, chosen)
	if confirm == "" {
		return answer, nil
	}
	e := metal3.Erasure{Host: string(request.Host.UID), Asked: time.Now().UTC(), Disks: chosen}
	if err := p.erasures.Begin(node, e); err != nil {
		return status.Erase{}, fmt.Errorf("%s is not erased: %w", node, err)
	}

	p.Log.Info("erasure begun", "node", node, "disks", len(chosen))
	p.addOwnerEvent(node, "EraseBegun", "its disks are erased, as its owner asked: "+answer.Text())
	p.Recheck()
	answer.Begun = true
	return answer, nil
}

// eraseRequest is what is known of a node whose disks are to be erased.
func (p *Provisioner) eraseRequest(
	ctx context.Context, node string, hosts []metal3api.BareMetalHost,
) (metal3.EraseRequest, error) {
	records, err := p.Hosts.Backups.Read()
	if err != nil {
		return metal3.EraseRequest{}, err
	}
	before, err := p.erasures.Last(node)
	switch {
	case err != nil:
		return metal3.EraseRequest{}, err
	case before.IsOpen():
		return metal3.EraseRequest{}, errors.New("it " + before.Sentence() + "; firstlightd why " + node + " says how that stands")
	}

	r := metal3.EraseRequest{Record: records[node]}
	for i := range hosts {
		if hosts[i].Name == node {
			r.Host = &hosts[i]
		}
	}
	if r.Host != nil {
		r.HasBMC = hasBMC(r.Host)
		if r.Found, err = p.found.Contents(ctx, r.Host); err != nil {
			return metal3.EraseRequest{}, err
		}
	}
	return r, nil
}

// describeErase says which disks of a host would be erased, and which would not.
func describeErase(h *metal3api.BareMetalHost, chosen []metal3.ErasedDisk) status.Erase {
	answer := status.Erase{Node: h.Name}
	for _, d := range chosen {
		one := status.EraseDisk{Name: d.Name, Serial: d.Serial, WWN: d.WWN, Bytes: d.Bytes, Holds: d.Holds.Kinds}
		if m := d.Holds.Mark; m != nil {
			one.Installed = m.Node + " of site " + m.Site
		}
		answer.Disks = append(answer.Disks, one)
	}
	for _, s := range h.Status.HardwareDetails.Storage {
		isChosen := func(d metal3.ErasedDisk) bool {
			return slices.Contains(append([]string{s.Name}, s.AlternateNames...), d.Name)
		}
		if !slices.ContainsFunc(chosen, isChosen) {
			answer.Kept = append(answer.Kept, status.EraseDisk{
				Name: s.Name, Serial: s.SerialNumber, WWN: s.WWN, Bytes: int64(s.SizeBytes),
			})
		}
	}
	return answer
}

// Erasure is the last erasure of a host; nil if there was none.
func (p *Provisioner) Erasure(host string) *metal3.Erasure {
	e, err := p.erasures.Last(host)
	if err != nil || e.Host == "" {
		return nil
	}
	return &e
}

// describeErasure says how the open erasure of a host stands; "" if there is none.
func (p *Provisioner) describeErasure(host string) string {
	e, err := p.erasures.Last(host)
	switch {
	case err != nil:
		return "may be in the middle of being erased: " + err.Error()
	case e.IsOpen():
		return e.Sentence()
	}
	return ""
}

// EraseHosts takes every erasure from step to step until ctx ends.
func (p *Provisioner) EraseHosts(ctx context.Context, up func() bool) error {
	return followLedger(ctx, p, up, p.erasures, p.eraseNext)
}

// followLedger does the next step of each open entry of a ledger, until ctx ends.
func followLedger[T metal3.Entry[T]](
	ctx context.Context, p *Provisioner, up func() bool, ledger *metal3.Ledger[T],
	next func(ctx context.Context, host string, entry T) error,
) error {
	if !rerun.Await(ctx, up) {
		return nil
	}
	for {
		open, err := ledger.Open()
		if err != nil {
			return err
		}
		if p.Hosts.IsCurrent() {
			for host, entry := range open {
				if err := next(ctx, host, entry); err != nil && ctx.Err() == nil {
					p.Log.Warn("what the owner of a node asked for waits", "node", host, "in", ledger.Dir, "error", err)
				}
			}
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(ledgerInterval):
		}
	}
}

// readHost reads a host from the API itself; nil if there is none.
func (p *Provisioner) readHost(ctx context.Context, name string) (client.Client, *metal3api.BareMetalHost, error) {
	api, err := p.Client()
	if err != nil {
		return nil, nil, err
	}
	h := &metal3api.BareMetalHost{}
	key := client.ObjectKey{Namespace: metal3.Namespace, Name: name}
	if err := api.Get(ctx, key, h); client.IgnoreNotFound(err) != nil {
		return nil, nil, err
	} else if err != nil {
		return api, nil, nil
	}
	return api, h, nil
}

func patchHost(ctx context.Context, api client.Client, h *metal3api.BareMetalHost, change metal3.Patch) error {
	text, err := change.JSON()
	if err != nil {
		return err
	}
	return api.Patch(ctx, h, client.RawPatch(types.MergePatchType, text))
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
			node.Silent = isAgentGone(e.Started, called, p.began, time.Now())
		}
	}

	step, sentence := metal3.NextErase(e, h, node)
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

// agentSilence is how long an agent that erases disks may be silent: it calls every 18 to 36 s, also while it works.
const agentSilence = 3 * time.Minute

// isAgentGone reports whether the agent of a try that was started once called last too long before now. While the daemon
// did not run, which it does since began, no agent was let through. It is pure.
func isAgentGone(started, called, began, now time.Time) bool {
	return called.After(started) && now.Sub(called) > agentSilence && now.Sub(began) > agentSilence
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
		return patch(metal3.ReleasePatch(false))
	case metal3.EraseManage:
		return p.api.Manage(ctx, id)
	case metal3.EraseProtect:
		return p.api.Protect(ctx, id)
	case metal3.EraseProvide:
		return p.api.Provide(ctx, id)
	case metal3.EraseAbort:
		return p.api.Abort(ctx, id)
	case metal3.EraseClean:
		var rest []metal3.WriteDisk
		err := p.erasures.Edit(name, func(e *metal3.Erasure) error {
			e.Tries++
			e.Started = time.Now().UTC()
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
		if err := patch(metal3.ReleasePatch(h.DeletionTimestamp == nil)); err != nil {
			return err
		}
		return p.endErasure(name, sentence)
	case metal3.EraseEnd:
		if h != nil && metal3.IsErasing(h) { // nobody else would take it off
			if err := patch(metal3.ReleasePatch(false)); err != nil {
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
		case len(e.Rest()) == 0:
			e.Failure = ""
		case e.Refused != "":
			e.Failure = e.Refused
		case sentence != "":
			e.Failure = sentence
		case e.Failure == "":
			e.Failure = "somebody gave it work meanwhile"
		}
		e.Ended = time.Now().UTC()
		ended = *e
		return nil
	})
	if err != nil {
		return err
	}

	reason := "Erased"
	if len(ended.Rest()) > 0 {
		reason = "EraseFailed"
	}
	p.Log.Info("erasure ended", "node", name, "result", ended.Sentence())
	p.addOwnerEvent(name, reason, "it "+ended.Sentence())
	p.Recheck()
	return nil
}

// addOwnerEvent tells a host what became of something that its owner asked for.
func (p *Provisioner) addOwnerEvent(node, reason, message string) {
	at := time.Now()
	sum := sha256.Sum256([]byte(at.String() + message))
	e := hostEvent{Host: node, Name: fmt.Sprintf("asked-%x", sum[:8]), Reason: reason, Message: message, At: at}
	e.IsNormal = reason != "EraseFailed"
	go p.addEvent(e)
}

// mayErase answers a ramdisk that is about to erase a disk: "", or why it may not. An error is no answer: it asks again.
func (p *Provisioner) mayErase(_ context.Context, host string, asked agentgate.WriteRequest) (string, error) {
	return p.editErasure(host, func(e *metal3.Erasure, h *metal3api.BareMetalHost) error {
		i, err := metal3.CheckErasedDisk(*e, h, metal3.SeenDisk{
			WriteDisk: metal3.WriteDisk(asked.Disk), Holds: asked.Holds, Bytes: asked.Bytes, Others: asked.Others,
		})
		if err != nil {
			return err
		}
		if e.Disks[i].Begun.IsZero() {
			e.Disks[i].Begun = time.Now().UTC()
		}
		return nil
	})
}

// noteErased takes the word of a ramdisk that a disk which it was let erase is blank.
func (p *Provisioner) noteErased(_ context.Context, host string, done agentgate.EraseReport) (string, error) {
	return p.editErasure(host, func(e *metal3.Erasure, h *metal3api.BareMetalHost) error {
		i, err := metal3.CheckReport(*e, h, metal3.WriteDisk(done.Disk))
		switch {
		case err != nil:
			return err
		case !done.Holds.IsBlank():
			return fmt.Errorf("disk %s is not blank", done.Disk.Name)
		case !e.Disks[i].Erased.IsZero():
			return nil // the answer was lost
		}
		d := &e.Disks[i]
		d.Erased, d.Method, d.Compared, d.Unattached = time.Now().UTC(), done.Method, done.Compared, done.Unattached
		p.addOwnerEvent(host, "DiskErased", fmt.Sprintf("disk %s (serial number %q) was erased by %s", done.Disk.Name,
			done.Disk.Serial, metal3.MethodText(done.Method)))
		return nil
	})
}

// editErasure changes the open erasure of a host; what change refuses is kept as the reason, and not tried again.
func (p *Provisioner) editErasure(
	host string, change func(*metal3.Erasure, *metal3api.BareMetalHost) error,
) (string, error) {
	h := p.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool { return h.Name == host })
	if h == nil {
		return "", fmt.Errorf("host %s is not known yet", host)
	}

	refusal := ""
	err := p.erasures.Edit(host, func(e *metal3.Erasure) error {
		changed := *e
		changed.Disks = slices.Clone(e.Disks)
		if err := change(&changed, h); err != nil {
			refusal, e.Refused = err.Error(), err.Error()
			return nil
		}
		*e = changed
		return nil
	})
	if refusal != "" && err == nil {
		return refusal, nil
	}
	if errors.Is(err, metal3.ErrNoneOpen) {
		return err.Error(), nil
	}
	return "", err
}
