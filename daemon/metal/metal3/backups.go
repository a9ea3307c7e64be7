package metal3

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Backups keeps on DATA what the API knows of each host, one JSON file per host. When the
// API's database is lost, a host that was in service is taken over again from its record
// (see Restore); without one it would look new, and be wiped.
type Backups struct {
	Dir string
	Log *slog.Logger
}

// HostBackup is what is kept of a host: enough to create it again as it was.
type HostBackup struct {
	Host    metal3api.BareMetalHost `json:"host"` // metadata that is ours, spec, status
	Removed bool                    `json:"gone"` // its owner removed it: it is not to come back
	// FromSite: a site once named it. It stays so; records of before this field have the label.
	FromSite bool `json:"fromSite,omitempty"`
}

// IsLive tells whether the host of this record was in service and still ought to be.
func (r HostBackup) IsLive() bool { return !r.Removed && InService(&r.Host) }

// Read returns all records by host name. A file that is torn or not a record is named in
// the log and left where it is: it may be all that is left of a host.
func (r Backups) Read() (map[string]HostBackup, error) {
	paths, err := filepath.Glob(filepath.Join(r.Dir, "*.json"))
	if err != nil {
		return nil, err
	}

	out := map[string]HostBackup{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read host record: %w", err)
		}

		var rec HostBackup
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if err := json.Unmarshal(text, &rec); err != nil || rec.Host.Name != name {
			r.Log.Error("host record cannot be read", "file", path, "error", err)
			continue
		}

		rec.FromSite = rec.FromSite || rec.Host.Labels[LabelSite] != ""
		out[name] = rec
	}

	return out, nil
}

// Save writes the record of a host if it says anything new, by rename, synced: what is
// read later is one state or the other. A host that only is absent from the API keeps its
// record: losing the API's database looks the same.
func (r Backups) Save(h *metal3api.BareMetalHost) error {
	rec := HostBackup{Removed: h.DeletionTimestamp != nil, FromSite: h.Labels[LabelSite] != "", Host: metal3api.BareMetalHost{
		TypeMeta:   metav1.TypeMeta{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost"},
		ObjectMeta: metav1.ObjectMeta{Name: h.Name, Namespace: h.Namespace, Labels: h.Labels, UID: h.UID},
		Spec:       h.Spec,
		Status:     h.Status,
	}}
	text, err := json.MarshalIndent(rec, "", "\t")
	if err != nil {
		return fmt.Errorf("encode record of host %s: %w", h.Name, err)
	}

	path := filepath.Join(r.Dir, h.Name+".json")
	if old, err := os.ReadFile(path); err == nil {
		var was HostBackup
		read := json.Unmarshal(old, &was) == nil
		if bytes.Equal(old, text) || read && wouldLoseHost(was, rec) {
			return nil
		}
		if read && !rec.FromSite && (was.FromSite || was.Host.Labels[LabelSite] != "") {
			rec.FromSite = true
			if text, err = json.MarshalIndent(rec, "", "\t"); err != nil {
				return fmt.Errorf("encode record of host %s: %w", h.Name, err)
			}
			if bytes.Equal(old, text) {
				return nil
			}
		}
	}

	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(path, text, 0o600); err != nil {
		return fmt.Errorf("keep record of host %s: %w", h.Name, err)
	}

	return nil
}

// wouldLoseHost tells whether a new record would lose a host in service: an object of the same
// name that was made anew and knows nothing of the installed system yet.
func wouldLoseHost(was, now HostBackup) bool {
	return was.IsLive() && !now.Removed && !InService(&now.Host) && was.Host.UID != now.Host.UID
}

// Annotations of the baremetal-operator's own.
const (
	annotationStatus = metal3api.StatusAnnotation // the operator takes a new host's status from it
	annotationPaused = metal3api.PausedAnnotation // the operator leaves the host alone
	pausedBy         = "firstlight"               // our value of it: only ours is taken away again
)

// RestoredHost is the host as it must be created when the API has lost it: with its whole
// status and the very image it was installed with, paused. Anything less and the operator
// would install it again.
func RestoredHost(r HostBackup) (*metal3api.BareMetalHost, error) {
	status, err := json.Marshal(r.Host.Status)
	if err != nil {
		return nil, fmt.Errorf("encode status of host %s: %w", r.Host.Name, err)
	}

	h := r.Host.DeepCopy()
	h.Status, h.UID = metal3api.BareMetalHostStatus{}, ""
	h.Annotations = map[string]string{annotationStatus: string(status), annotationPaused: pausedBy}
	return h, nil
}

// CheckResumable is nil if a restored host may be given back to the operator: it knows the host
// to be in service with the image that it has on disk. Otherwise it says what is wrong.
func CheckResumable(h *metal3api.BareMetalHost, r HostBackup) error {
	switch {
	case h.Annotations[annotationPaused] != pausedBy:
		return fmt.Errorf("host %s was not paused by the appliance", h.Name)
	case h.Status.Provisioning.State != r.Host.Status.Provisioning.State:
		return fmt.Errorf(
			"host %s is %q in the API, %q in its record", h.Name, h.Status.Provisioning.State,
			r.Host.Status.Provisioning.State,
		)
	case imageURL(h.Spec.Image) != imageURL(r.Host.Spec.Image):
		return fmt.Errorf(
			"host %s has image %q in the API, %q on its disk", h.Name, imageURL(h.Spec.Image),
			imageURL(r.Host.Spec.Image),
		)
	}
	return nil
}

func imageURL(i *metal3api.Image) string {
	if i == nil {
		return ""
	}
	return i.URL
}
