// Package fact is what is known of a node, in the words of those who know it: Metal3's
// BareMetalHost and Ironic's node, each cut down to what a decision or a sentence is made
// from. It decides nothing.
package fact

import (
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// Host is a BareMetalHost.
type Host struct {
	Name        string
	UID         string
	State       string // of provisioning: registering, inspecting, available, provisioning, provisioned, …; "" at first
	Operational string // OK, error, delayed, detached, discovered
	ErrorType   string // registration error, provisioning error, …
	Error       string
	Errors      int // since the last success
	PoweredOn   bool
	Online      bool // wanted
	Paused      bool // the operator leaves it alone
	MACs        []string
	Image       string    // URL that it is to have; "" while it has none
	Installed   string    // URL that it has
	Since       time.Time // State has been so since, as far as the operator tells; zero if it does not
	Deployed    time.Time // the last installation ended
	Disks       int       // that inspection found
	Inspected   bool
	Broken      []inspection.Device // NICs and disk controllers that nothing drove when it was inspected
}

// InService tells whether an operating system runs there that must not be touched.
func (h Host) InService() bool {
	return h.State == string(metal3api.StateProvisioned) || h.State == string(metal3api.StateExternallyProvisioned)
}

// HostOf is what a BareMetalHost says.
func HostOf(b *metal3api.BareMetalHost) Host {
	s := b.Status
	h := Host{
		Name:        b.Name,
		UID:         string(b.UID),
		State:       string(s.Provisioning.State),
		Operational: string(s.OperationalStatus),
		ErrorType:   string(s.ErrorType),
		Error:       apply.RedactIronicError(s.ErrorMessage),
		Errors:      s.ErrorCount,
		PoweredOn:   s.PoweredOn,
		Online:      b.Spec.Online,
		Installed:   s.Provisioning.Image.URL,
		Deployed:    s.OperationHistory.Provision.End.Time,
		Inspected:   s.HardwareDetails != nil,
		Broken:      inspection.ParseBroken(b.Annotations[label.BrokenDevices]),
	}
	_, h.Paused = b.Annotations[metal3api.PausedAnnotation]
	if b.Spec.Image != nil {
		h.Image = b.Spec.Image.URL
	}

	add := func(mac string) {
		mac = strings.ToLower(mac)
		for _, m := range h.MACs {
			if m == mac {
				return
			}
		}
		if mac != "" {
			h.MACs = append(h.MACs, mac)
		}
	}
	add(b.Spec.BootMACAddress)
	if d := s.HardwareDetails; d != nil {
		h.Disks = len(d.Storage)
		for _, nic := range d.NIC {
			add(nic.MAC)
		}
	}

	h.Since = stateSince(s.Provisioning.State, s.OperationHistory, b.CreationTimestamp.Time)
	return h
}

// stateSince is when a state began, from the operator's history of its four operations: each
// state begins when one of them starts or ends.
func stateSince(state metal3api.ProvisioningState, o metal3api.OperationHistory, created time.Time) time.Time {
	switch state {
	case metal3api.StateNone, metal3api.StateUnmanaged:
		return created
	case metal3api.StateRegistering:
		return o.Register.Start.Time
	case metal3api.StateInspecting:
		return o.Inspect.Start.Time
	case metal3api.StatePreparing, metal3api.StateReady, metal3api.StateAvailable:
		return laterOf(o.Inspect.End.Time, o.Deprovision.End.Time)
	case metal3api.StateProvisioning:
		return o.Provision.Start.Time
	case metal3api.StateProvisioned:
		return o.Provision.End.Time
	case metal3api.StateDeprovisioning:
		return o.Deprovision.Start.Time
	}
	return time.Time{}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
