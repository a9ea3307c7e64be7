package metal3

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
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
	// Installed is whether the host was in service at any time: consent to its first installation is spent.
	Installed bool `json:"installed,omitempty"`
	// Unreadable is what is wrong with a file that is torn or no backup, with its name; nothing else is set then.
	Unreadable string `json:"-"`
}

// IsLive tells whether the host of this record was in service and still ought to be.
func (r HostBackup) IsLive() bool { return !r.Removed && InService(&r.Host) }

// Read returns all records by host name. A file that cannot be read, is torn or not a record is there as Unreadable,
// and is left where it is: its host may be in service, and the file all that is left of it.
func (r Backups) Read() (map[string]HostBackup, error) {
	paths, err := filepath.Glob(filepath.Join(r.Dir, "*.json"))
	if err != nil {
		return nil, err
	}

	out := map[string]HostBackup{}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		text, err := os.ReadFile(path)
		rec := HostBackup{}
		if err == nil {
			rec, err = decodeBackup(name, text)
		}

		if err != nil {
			r.Log.Error("host record cannot be read", "file", path, "error", err)
			rec = HostBackup{Unreadable: fmt.Sprintf("%s: %v", path, err)}
		}

		out[name] = rec
	}

	return out, nil
}

// IsTorn reports whether the backup of a host cannot be read.
func (r Backups) IsTorn(host string) bool {
	text, err := os.ReadFile(filepath.Join(r.Dir, host+".json"))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}

	_, torn := decodeBackup(host, text)
	return torn != nil
}

// Names reports whether a backup is of a host that the appliance has switched on itself, or cannot be read.
func (r Backups) Names(host string) bool {
	text, err := os.ReadFile(filepath.Join(r.Dir, host+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}

	rec, torn := decodeBackup(host, text)
	if err != nil || torn != nil {
		return true
	}

	switch rec.Host.Status.Provisioning.State {
	case metal3api.StateNone, metal3api.StateUnmanaged, metal3api.StateRegistering:
		return false
	}
	return !rec.Removed
}

func decodeBackup(name string, text []byte) (HostBackup, error) {
	var rec HostBackup
	if err := json.Unmarshal(text, &rec); err != nil {
		return HostBackup{}, fmt.Errorf("it is torn: %w", err)
	}
	if rec.Host.Name != name {
		return HostBackup{}, fmt.Errorf("it is of host %q", rec.Host.Name)
	}
	rec.Installed = rec.Installed || InService(&rec.Host)
	rec.FromSite = rec.FromSite || rec.Host.Labels[LabelSite] != ""
	return rec, nil
}

// Save writes the record of a host if it says anything new, by rename, synced: what is
// read later is one state or the other. A host that only is absent from the API keeps its
// record: losing the API's database looks the same. A record that cannot be read is replaced
// by that of a host in service only.
func (r Backups) Save(h *metal3api.BareMetalHost) error {
	rec := newBackup(h)
	path := filepath.Join(r.Dir, h.Name+".json")
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep record of host %s: %w", h.Name, err)
	}

	if err == nil {
		was, torn := decodeBackup(h.Name, old)
		if torn != nil && !InService(h) || torn == nil && wouldLoseHost(was, rec) {
			return nil
		}
		rec.Installed = rec.Installed || was.Installed
		rec.FromSite = rec.FromSite || was.FromSite
	}

	return r.write(rec, old)
}

// Retire notes that the host with this UID is not to come back, whatever its record says of it.
func (r Backups) Retire(host, uid string) error {
	old, err := os.ReadFile(filepath.Join(r.Dir, host+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("retire the record of host %s: %w", host, err)
	}
	rec, torn := decodeBackup(host, old)
	if torn != nil {
		return fmt.Errorf("retire the record of host %s: %w", host, torn)
	}
	if string(rec.Host.UID) != uid {
		return nil
	}
	rec.Removed = true
	return r.write(rec, old)
}

func newBackup(h *metal3api.BareMetalHost) HostBackup {
	fromSite := h.Labels[LabelSite] != ""
	return HostBackup{Removed: h.DeletionTimestamp != nil, Installed: InService(h), FromSite: fromSite, Host: metal3api.BareMetalHost{
		TypeMeta:   metav1.TypeMeta{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost"},
		ObjectMeta: metav1.ObjectMeta{Name: h.Name, Namespace: h.Namespace, Labels: h.Labels, UID: h.UID},
		Spec:       h.Spec,
		Status:     h.Status,
	}}
}

// write writes a record unless its file holds just that.
func (r Backups) write(rec HostBackup, old []byte) error {
	name := rec.Host.Name
	text, err := json.MarshalIndent(rec, "", "\t")
	if err != nil {
		return fmt.Errorf("encode record of host %s: %w", name, err)
	}
	if bytes.Equal(old, text) {
		return nil
	}
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(r.Dir, name+".json"), text, 0o600); err != nil {
		return fmt.Errorf("keep record of host %s: %w", name, err)
	}

	return nil
}

// wouldLoseHost tells whether a new record would lose a host in service: an object of the same
// name that was made anew and knows nothing of the installed system yet, also while that object is removed.
func wouldLoseHost(was, now HostBackup) bool {
	return was.IsLive() && !InService(&now.Host) && was.Host.UID != now.Host.UID
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
