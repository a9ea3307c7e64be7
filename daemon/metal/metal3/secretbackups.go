package metal3

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// SecretBackups keeps the BMC credentials of applied hosts on DATA, one file per host, readable by root alone. Those of
// the site's nodes are in site.yaml; these would be lost with the API's database, and with them the host.
type SecretBackups struct{ Dir string }

type secretBackup struct {
	Name string            `json:"name"` // of the Secret
	Data map[string][]byte `json:"data"`
}

func (b SecretBackups) path(host string) string { return filepath.Join(b.Dir, host+".json") }

// Save keeps the credentials of a host, if they are others than before.
func (b SecretBackups) Save(host, name string, data map[string][]byte) error {
	text, err := json.Marshal(secretBackup{name, data})
	if err != nil {
		return fmt.Errorf("encode credentials of host %s: %w", host, err)
	}

	if old, err := os.ReadFile(b.path(host)); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(b.path(host), text, 0o600); err != nil {
		return fmt.Errorf("keep credentials of host %s: %w", host, err)
	}

	return nil
}

// Read is the Secret as it was saved; nil if none was, or if the file is torn.
func (b SecretBackups) Read(host string) *corev1.Secret {
	var saved secretBackup
	text, err := os.ReadFile(b.path(host))
	if err != nil || json.Unmarshal(text, &saved) != nil || saved.Name == "" {
		return nil
	}

	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: saved.Name, Namespace: Namespace},
		Type:       corev1.SecretTypeOpaque,
		Data:       saved.Data,
	}
}
