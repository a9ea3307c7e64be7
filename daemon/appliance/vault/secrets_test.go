package vault

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
)

const page = "../../../docs/security.md"

// TestDocsShowTheSecrets holds docs/security.md to the list.
func TestDocsShowTheSecrets(t *testing.T) {
	var rows strings.Builder
	rows.WriteString("| secret | owner | kept in | used for | replaced | in an away copy |\n|---|---|---|---|---|---|\n")
	for _, s := range Secrets() {
		places := ""
		for _, file := range s.Files {
			places += ", `" + file + "`"
		}
		for _, object := range s.Objects {
			places += ", Secret `" + object + "`"
		}
		away := map[bool]string{true: "yes", false: "no"}[s.Away]
		fmt.Fprintf(&rows, "| %s | %s | %s | %s | %s | %s |\n", s.Name, s.Owner, strings.TrimPrefix(places, ", "), s.Used, s.Rotated, away)
	}
	goldentest.CheckPart(t, page, "secrets", rows.String())
}

func TestEverySecretSaysAllOfItself(t *testing.T) {
	names := map[string]bool{}
	for _, s := range Secrets() {
		assert.False(t, names[s.Name], s.Name)
		names[s.Name] = true
		assert.NotEmpty(t, s.Owner, s.Name)
		assert.NotEmpty(t, s.Used, s.Name)
		assert.NotEmpty(t, s.Rotated, s.Name)
		assert.NotEmpty(t, append(s.Files, s.Objects...), s.Name)
	}
}

func TestWhichSecretAFileIsOf(t *testing.T) {
	for file, want := range map[string]string{
		"/var/lib/firstlight/ca/ca.key":                            "authority",
		"/var/lib/firstlight/ca/registry.key":                      "certificates",
		"/var/lib/firstlight/ssh/id_ed25519":                       "log-in to nodes",
		"/etc/kubernetes/pki/ca.key":                               "Kubernetes' authorities",
		"/etc/kubernetes/pki/apiserver.key":                        "Kubernetes' certificates",
		"/etc/kubernetes/pki/etcd/ca.key":                          "Kubernetes' authorities",
		"/var/lib/etcd/member/snap/db":                             "objects of Kubernetes",
		"/opt/kud/multi-cluster/edge/artifacts/admin.conf":         "kubeconfigs of clusters",
		"/opt/kud/multi-cluster/edge/artifacts/deep/er/admin.conf": "",
		"/var/lib/firstlight/secret/unheard-of":                    "",
	} {
		s, ok := OfFile(file)
		assert.Equal(t, want, s.Name, file)
		assert.Equal(t, want != "", ok, file)
	}
	s, ok := OfObject("metal3/node1-bmc-secret")
	assert.True(t, ok)
	assert.Equal(t, "logins of BMCs", s.Name)
	_, ok = OfObject("metal3/unheard-of")
	assert.False(t, ok)
}

func TestWhatAnApplianceHolds(t *testing.T) {
	root := t.TempDir()
	old := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, file := range []string{"/var/lib/firstlight/ca/ca.key", "/var/lib/firstlight/ca/ironic.key", "/var/lib/firstlight/ca/registry.key", "/var/lib/etcd/member/wal"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte("do not show"), 0o000))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(root, "/var/lib/kubelet/pods"), 0o700))
	require.NoError(t, os.Chtimes(filepath.Join(root, "/var/lib/firstlight/ca/ironic.key"), old, old))

	held := map[string]Held{}
	for _, h := range Hold(root, []Object{{"metal3", "n-bmc-secret", old}, {"tenant", "x-bmc-secret", old}, {"tenant", "edge-kubeconfig", old}}) {
		held[h.Name] = h
		assert.NotContains(t, fmt.Sprint(h), "do not show")
	}
	assert.Len(t, held, len(Secrets()))
	assert.Equal(t, []string{"/var/lib/firstlight/ca/ca.key"}, held["authority"].Places)
	assert.Equal(t, []string{"/var/lib/firstlight/ca/ironic.key", "/var/lib/firstlight/ca/registry.key"}, held["certificates"].Places)
	assert.Equal(t, 2, held["certificates"].Count)
	assert.True(t, held["certificates"].Since.Equal(old), held["certificates"].Since)
	assert.Equal(t, []string{"/var/lib/etcd/"}, held["objects of Kubernetes"].Places)
	assert.Zero(t, held["files of pods"].Count, "there is none")
	assert.Equal(t, []string{"Secret metal3/n-bmc-secret"}, held["logins of BMCs"].Places)
	assert.Equal(t, []string{"Secret tenant/edge-kubeconfig"}, held["kubeconfigs of clusters"].Places)
}
