package metal3

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/assets/label"
)

// maxBroken is how many devices an annotation names. A report comes from whatever booted: it does not fill the API.
const maxBroken = 16

// deviceMetadata is what a host says of its devices: labels, and annotations.
type deviceMetadata struct {
	Labels      map[string]string  `json:"labels,omitempty"`
	Annotations map[string]*string `json:"annotations,omitempty"` // nil takes one away
}

// deviceChanges is what of a host's metadata differs from what its inspection found; false if nothing does, or if the
// inspection reported no devices.
func deviceChanges(h *metal3api.BareMetalHost, found []inspection.Device) (deviceMetadata, bool) {
	if found == nil {
		return deviceMetadata{}, false
	}

	f := inspection.FindFeatures(found)
	changes := deviceMetadata{Labels: map[string]string{
		label.FoundSRIOV: strconv.FormatBool(f.SRIOV),
		label.FoundQAT:   strconv.FormatBool(f.QAT),
		label.FoundGPU:   strconv.FormatBool(f.GPU),
		label.FoundFPGA:  strconv.FormatBool(f.FPGA),
	}}
	maps.DeleteFunc(changes.Labels, func(key, value string) bool { return h.Labels[key] == value })

	have, there := h.Annotations[label.BrokenDevices]
	broken := inspection.Broken(found)
	switch text, err := json.Marshal(broken[:min(len(broken), maxBroken)]); {
	case len(broken) == 0 && there:
		changes.Annotations = map[string]*string{label.BrokenDevices: nil}
	case len(broken) > 0 && err == nil && have != string(text):
		changes.Annotations = map[string]*string{label.BrokenDevices: new(string(text))}
	}

	return changes, len(changes.Labels)+len(changes.Annotations) > 0
}

// LabelDevices makes hosts say what their last inspections found of their devices. Hosts that are not asked about, or
// that say so already, are left alone. It goes on with the others when Ironic has no answer for one.
func (i *Inspections) LabelDevices(ctx context.Context, api client.Client, hosts []metal3api.BareMetalHost) error {
	var failure error
	for _, h := range hosts {
		if h.Status.HardwareDetails == nil || h.DeletionTimestamp != nil {
			continue
		}

		report, err := i.Report(ctx, &h)
		if err != nil {
			failure = err
			continue
		}

		changes, differ := deviceChanges(&h, report.Devices)
		if !differ {
			continue
		}

		patch, err := json.Marshal(map[string]deviceMetadata{"metadata": changes})
		if err != nil {
			return fmt.Errorf("label host %s: %w", h.Name, err)
		}
		target := &metal3api.BareMetalHost{}
		target.Namespace, target.Name = h.Namespace, h.Name
		if err := api.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("label host %s: %w", h.Name, err)
		}
	}
	return failure
}
