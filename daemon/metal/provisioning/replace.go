package provisioning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// replacementDir has what is known of servers that others took the place of.
const replacementDir = backupDir + "/replaced"

// Replace has the server that a node stands for replaced by the one that site.yaml names now. The old server is left as
// it is. Without a word nothing is begun: the answer says what would be replaced, and has the word that confirms just
// that. Nothing comes between the comparison with it and the beginning. The error is for people; ErrNotAsRead is among
// them.
func (p *Provisioner) Replace(node, word string) (status.Replace, error) {
	hosts, current := p.Hosts.List()
	if !current {
		return status.Replace{}, errors.New("the appliance is still starting and does not know its hosts yet; try again when firstlightd status says that it is ready")
	}
	p.asking.Lock()
	defer p.asking.Unlock()
	r, err := p.prepareReplacement(node, hosts)
	if err != nil {
		return status.Replace{}, fmt.Errorf("%s is not replaced: %w", node, err)
	}

	answer := status.Replace{Node: node, Host: r.Host, New: r.New}
	answer.Word = answer.NewWord()
	if word == "" {
		return answer, nil
	}
	err = checkAsRead(word, answer.Word, otherHost, "of another server than the one that site.yaml names now")
	if err == nil {
		err = p.replacements.Begin(node, r)
	}
	if err != nil {
		return status.Replace{}, fmt.Errorf("%s is not replaced: %w", node, err)
	}

	p.Log.Info("replacement begun", "node", node, "new", r.New)
	p.addOwnerEvent(node, "ReplaceBegun", "its server is replaced, as its owner asked: site.yaml gives it "+r.New)
	p.Recheck()
	answer.Begun = true
	return answer, nil
}

// OtherServer is what the site says of a node that is another server's than the one that it stands for, "" if that is
// not what blocks it.
func (p *Provisioner) OtherServer(node string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.progress {
		if one.Node == node && one.Err == nil {
			return one.OtherServer
		}
	}
	return ""
}

func (p *Provisioner) prepareReplacement(node string, hosts []metal3api.BareMetalHost) (metal3.Replacement, error) {
	if sentence := p.describeErasure(node); sentence != "" {
		return metal3.Replacement{}, errors.New("it " + sentence)
	}
	before, err := p.replacements.Last(node)
	switch {
	case err != nil:
		return metal3.Replacement{}, err
	case before.IsOpen():
		return metal3.Replacement{}, errors.New("it " + before.Sentence())
	}
	objects, err := p.nodeObjects()
	if err != nil {
		return metal3.Replacement{}, err
	}
	records, err := p.Hosts.Backups.Read()
	if err != nil {
		return metal3.Replacement{}, err
	}

	i := slices.IndexFunc(objects, func(n metal3.NodeObjects) bool { return n.Host.Name == node })
	if i < 0 {
		return metal3.Replacement{}, errors.New("it is not in site.yaml")
	}
	var have *metal3api.BareMetalHost
	if k := slices.IndexFunc(hosts, func(h metal3api.BareMetalHost) bool { return h.Name == node }); k >= 0 {
		have = &hosts[k]
	}
	return metal3.CheckReplace(objects[i], have, records[node])
}

// ReplaceHosts takes every replacement from step to step until ctx ends.
func (p *Provisioner) ReplaceHosts(ctx context.Context, up func() bool) error {
	return followLedger(ctx, p, up, p.replacements, func(context.Context) error { return nil }, p.replaceNext)
}

func (p *Provisioner) replaceNext(ctx context.Context, name string, r metal3.Replacement) error {
	api, h, err := p.readHost(ctx, name)
	if err != nil {
		return err
	}

	step := metal3.NextReplace(r, h)
	if step != metal3.ReplaceWait {
		p.Log.Info("replacement", "node", name, "step", string(step))
	}
	switch step {
	case metal3.ReplaceDetach:
		return patchHost(ctx, api, h, metal3.DetachPatch())
	case metal3.ReplaceDelete:
		return client.IgnoreNotFound(api.Delete(ctx, h, client.Preconditions{UID: &h.UID}))
	case metal3.ReplaceEnd:
		// First its record: with that, a lost host would be created again as it was.
		if err := p.Hosts.Backups.Retire(name, r.Host); err != nil {
			return err
		}
		err := p.replacements.Edit(name, func(r *metal3.Replacement) error { r.Ended = time.Now().UTC(); return nil })
		p.Log.Info("replacement ended", "node", name)
		p.Recheck()
		return err
	}
	return nil
}

// describeReplacement says how the open replacement of a node stands; "" if there is none.
func (p *Provisioner) describeReplacement(node string) string {
	r, err := p.replacements.Last(node)
	switch {
	case err != nil:
		return "may be in the middle of being replaced: " + err.Error()
	case r.IsOpen():
		return r.Sentence()
	}
	return ""
}

// describeBusy says what the appliance does with a host because its owner asked; "" if nothing.
func (p *Provisioner) describeBusy(host string) (metal3.Reason, string) {
	if sentence := p.describeReplacement(host); sentence != "" {
		return metal3.ReasonReplacing, sentence
	}
	return metal3.ReasonErasing, p.describeErasure(host)
}
