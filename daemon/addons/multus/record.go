package multus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Attachment is one interface of a pod: what plugins are called with, the same at each call.
type Attachment struct {
	Network      string          `json:"network"` // NAMESPACE/NAME of its definition; the default network's own name
	Interface    string          `json:"interface"`
	IsDefault    bool            `json:"default,omitempty"` // the pod's default network
	OfCluster    bool            `json:"cluster,omitempty"` // the cluster's default network
	Config       json.RawMessage `json:"config"`            // a list of plugins
	Capabilities map[string]any  `json:"capabilities,omitempty"`
	DefaultRoute []string        `json:"defaultRoute,omitempty"` // gateways
}

// PodAttachments are all of a pod's sandbox, in the order in which they are added. They are on the disk before the first
// of them is added: whatever moment the power goes, what may be there can be deleted.
type PodAttachments struct {
	Container   string       `json:"container"` // the sandbox
	Interface   string       `json:"interface"` // that the runtime asked for
	Args        [][2]string  `json:"args"`      // CNI_ARGS
	Attachments []Attachment `json:"attachments"`
}

// hasMore reports whether a pod has more than the cluster's default network.
func (p PodAttachments) hasMore() bool {
	for _, a := range p.Attachments {
		if !a.OfCluster {
			return true
		}
	}
	return false
}

// records are the files of PodAttachments.
type records string

func (r records) path(container, device string) string {
	// Neither may have a colon.
	return filepath.Join(string(r), container+":"+device+".json")
}

func (r records) Save(p PodAttachments) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode attachments: %w", err)
	}
	if err := os.MkdirAll(string(r), 0o700); err != nil {
		return fmt.Errorf("save attachments: %w", err)
	}
	return atomicfile.Write(r.path(p.Container, p.Interface), text, 0o600)
}

// Load returns a sandbox's attachments; false if there are none.
func (r records) Load(container, device string) (p PodAttachments, ok bool, err error) {
	text, err := os.ReadFile(r.path(container, device))
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, false, fmt.Errorf("read attachments of %s: %w", container, err)
	}
	return p, true, nil
}

func (r records) Remove(container, device string) error {
	if err := os.Remove(r.path(container, device)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove attachments of %s: %w", container, err)
	}
	return nil
}

// All returns those of all sandboxes; one that cannot be read is left out.
func (r records) All() ([]PodAttachments, error) {
	entries, err := os.ReadDir(string(r))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read attachments: %w", err)
	}

	var all []PodAttachments
	for _, e := range entries {
		container, device, ok := strings.Cut(strings.TrimSuffix(e.Name(), ".json"), ":")
		if !ok || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		if p, ok, err := r.Load(container, device); ok && err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// haveMore reports whether any pod has more than the cluster's default network.
func (r records) haveMore() (bool, error) {
	all, err := r.All()
	for _, p := range all {
		if p.hasMore() {
			return true, err
		}
	}
	return false, err
}
