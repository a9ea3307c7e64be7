package provisioning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// erasureDir is next to the records of hosts, so that away copies have it.
const erasureDir = backupDir + "/erased"

// Erase has disks of a node erased: those that are named by serial number, WWN or device name, and no other; without
// names its root device. Without a word nothing is begun: the answer says what would be erased, and has the word that
// confirms just that. Nothing comes between the comparison with it and the beginning. The error is for people;
// ErrNotAsRead is among them.
func (p *Provisioner) Erase(ctx context.Context, node string, disks []string, word string) (status.Erase, error) {
	hosts, current := p.Hosts.List()
	if !current {
		return status.Erase{}, errors.New("the appliance is still starting and does not know its hosts yet; try again when firstlightd status says that it is ready")
	}

	p.asking.Lock()
	defer p.asking.Unlock()
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
	if word == "" {
		return answer, nil
	}
	err = checkAsRead(word, answer.Word, otherHost, "of another inspection than the last one",
		"of other disks, or of other data on them")
	if err != nil {
		return status.Erase{}, fmt.Errorf("%s is not erased: %w", node, err)
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

// CancelErase takes the open erasure of a node back, if nothing was written yet. The error is for people.
func (p *Provisioner) CancelErase(node string) (status.Erase, error) {
	_, err := p.erasures.Last(node)
	if err == nil {
		err = p.erasures.Edit(node, func(e *metal3.Erasure) error { return e.Cancel(time.Now().UTC()) })
	}
	switch {
	case errors.Is(err, metal3.ErrNoneOpen):
		return status.Erase{}, fmt.Errorf("no disks of %s are to be erased: there is nothing to cancel", node)
	case err != nil:
		return status.Erase{}, fmt.Errorf("the erasure of %s is not cancelled: %w", node, err)
	}

	p.Log.Info("erasure cancelled", "node", node)
	p.Recheck()
	return status.Erase{Node: node, Cancelled: true}, nil
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
	if sentence := p.describeReplacement(node); sentence != "" {
		return metal3.EraseRequest{}, errors.New("it " + sentence + "; try again when that has ended")
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
	answer := status.Erase{
		Node:      h.Name,
		Host:      string(h.UID),
		Inspected: h.Status.OperationHistory.Inspect.End.UTC(),
	}
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
	answer.Word = answer.NewWord()
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
