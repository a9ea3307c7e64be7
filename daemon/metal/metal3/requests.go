package metal3

import (
	"encoding/json"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// Patch is a merge patch (RFC 7386) by which a person asks Metal3, or the appliance, to do something with a host.
type Patch map[string]any

// PowerPatch has a host switched on or off.
func PowerPatch(online bool) Patch { return Patch{"spec": Patch{"online": online}} }

// RebootPatch has a host restarted once: its system is asked first, and is switched off if it does not answer.
func RebootPatch() Patch { return annotate(metal3api.RebootAnnotationPrefix, "") }

// InspectPatch has an idle host inspected again.
func InspectPatch() Patch { return annotate(metal3api.InspectAnnotationPrefix, "") }

// ResumePatch gives a host that its owner has paused back to Metal3.
func ResumePatch() Patch { return annotate(annotationPaused, nil) }

// ConsentPatch consents to losing what is on the disks of a host: just what has that fingerprint.
func ConsentPatch(fingerprint string) Patch { return annotate(Overwrite, fingerprint) }

func annotate(key string, value any) Patch {
	return Patch{"metadata": Patch{"annotations": Patch{key: value}}}
}

// JSON is what the API takes.
func (p Patch) JSON() ([]byte, error) { return json.Marshal(p) }

// CanInspect reports whether a host is inspected again when somebody asks for it: it is idle, and has no system.
func CanInspect(h *metal3api.BareMetalHost) bool {
	return h.Spec.Image == nil && !InService(h) && isIdle(h.Status.Provisioning.State)
}

// IsPausedByOwner reports whether somebody has paused a host who is not the appliance.
func IsPausedByOwner(h *metal3api.BareMetalHost) bool {
	_, paused := h.Annotations[annotationPaused]
	return paused && h.Annotations[annotationPaused] != pausedBy && !IsOnHold(h) && !IsErasing(h)
}
