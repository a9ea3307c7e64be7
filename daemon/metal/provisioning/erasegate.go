package provisioning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/daemon/metal/agentgate"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

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
