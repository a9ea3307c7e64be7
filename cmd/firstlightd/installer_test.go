package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

func writeKey(t *testing.T, path string) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
}

// What docs/kud.md says of the installer's exit codes, as far as no node is needed.
func TestInstallerExitCodes(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "id_rsa")
	writeKey(t, key)
	common := []string{"installer", "--dir", dir, "--key", key}
	write := func(hosts string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "edge"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "edge", "hosts.ini"), []byte(hosts), 0o644))
	}
	good := "[all]\nm-1 ansible_ssh_host=127.38.82.1 ansible_ssh_port=1\n[kube-master]\nm-1\n[kube-node]\nm-1\n"
	for _, c := range []struct {
		what, hosts string
		args        []string
		code        int
	}{
		{"no cluster is named", good, nil, 2},
		{"a name that leaves the directory", good, []string{"--cluster", "../edge"}, 2},
		{"a network that is none", good, []string{"--cluster", "edge", "--network", "all"}, 2},
		{"words that belong to nothing", good, []string{"--cluster", "edge", "multus"}, 2},
		{"nothing to remove", good, []string{"--cluster", "edge", "--remove"}, 2},
		{"an option that KUD does not have either", good, []string{"--cluster", "edge", "--install_pkg"}, 2},
		{"plugins, which are Components", good, []string{"--cluster", "edge", "--plugins", "metrics-server"}, 2},
		{"an inventory without a control plane", "[kube-node]\na ansible_host=10.0.0.1\n", []string{"--cluster", "edge"}, 2},
		{"a cluster without a directory", good, []string{"--cluster", "other"}, 2},
		{"networks that overlap", good, []string{"--cluster", "edge", "--network", "10.244.0.0/16"}, 2},
		{"a control plane to remove", good, []string{"--cluster", "edge", "--remove", "m-1"}, 2},
		{"a key that is not there", good, []string{"--cluster", "edge", "--key", filepath.Join(dir, "none")}, 1},
		{"a node that does not answer", good, []string{"--cluster", "edge", "--stall", "1s"}, 1},
	} {
		write(c.hosts)
		assert.Equal(t, c.code, run(t.Context(), append(append([]string{}, common...), c.args...)), c.what)
	}
}
