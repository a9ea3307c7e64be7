package metal3

import (
	"context"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/inspection"
)

// Inspections remembers what each host's last inspection found of its disks and devices. That does not change before the
// host is inspected again, and Ironic works on one request at a time: a thousand hosts that wait for consent
// would be asked for in every round.
type Inspections struct {
	// Ask asks Ironic for one of its nodes; an empty report if it found nothing out.
	Ask func(ctx context.Context, node string) (inspection.Report, error)

	mu    sync.Mutex
	known map[string]lastInspection // by Ironic's node
}

type lastInspection struct {
	ended time.Time
	found inspection.Report
}

// Contents is what the host's last inspection found on its disks; nil if that is not known, which is asked for again.
// Nothing is known of a host that Ironic does not have.
func (i *Inspections) Contents(ctx context.Context, h *metal3api.BareMetalHost) (Contents, error) {
	report, err := i.Report(ctx, h)
	return report.Disks, err
}

// BootMode is how the host's firmware started the ramdisk that inspected it; "" if that is Metal3's default, or not
// known.
func (i *Inspections) BootMode(ctx context.Context, h *metal3api.BareMetalHost) (metal3api.BootMode, error) {
	report, err := i.Report(ctx, h)
	if err != nil || report.Booted != inspection.BIOS {
		return "", err
	}
	return metal3api.Legacy, nil
}

// Report is all that the host's last inspection found.
func (i *Inspections) Report(ctx context.Context, h *metal3api.BareMetalHost) (inspection.Report, error) {
	node, ended := h.Status.Provisioning.ID, h.Status.OperationHistory.Inspect.End.Time
	if node == "" {
		return inspection.Report{}, nil
	}

	i.mu.Lock()
	last, ok := i.known[node]
	i.mu.Unlock()
	if ok && last.ended.Equal(ended) {
		return last.found, nil
	}

	found, err := i.Ask(ctx, node)
	if err != nil || found.Disks == nil {
		return inspection.Report{}, err
	}

	i.mu.Lock()
	defer i.mu.Unlock()
	if i.known == nil {
		i.known = map[string]lastInspection{}
	}

	i.known[node] = lastInspection{ended, found}
	return found, nil
}
