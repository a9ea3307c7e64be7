package operator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
)

func aHost(change ...func(*host)) *host {
	b := &host{ObjectMeta: metav1.ObjectMeta{Namespace: "metal3", Name: "h", Labels: map[string]string{label.Verified: "true"}}}
	b.Spec.BootMACAddress = "52:54:00:00:00:0A"
	b.Status.Provisioning.State = metal3api.StateProvisioned
	b.Status.HardwareDetails = &metal3api.HardwareDetails{CPU: metal3api.CPU{Count: 8, Flags: []string{"x"}}, RAMMebibytes: 2048,
		NIC:     []metal3api.NIC{{MAC: "52:54:00:00:00:0A", Model: "0x8086 0x1528", IP: "10.0.0.1"}, {MAC: "52:54:00:00:00:0b"}},
		Storage: []metal3api.Storage{{Name: "/dev/sda"}}}
	for _, f := range change {
		f(b)
	}
	return b
}

func TestFact(t *testing.T) {
	whole := match.Host{Name: "metal3/h", MACs: []string{"52:54:00:00:00:0a", "52:54:00:00:00:0b"}, CPU: 8, Memory: 2 << 30, SRIOV: true}
	with := func(f func(*match.Host)) match.Host { h := whole; f(&h); return h }
	end := metav1.NewTime(time.Unix(1_700_000_000, 0))
	for name, c := range map[string]struct {
		host *host
		want match.Host
	}{
		"in service and proven": {aHost(), whole},
		"inspecting": {aHost(func(b *host) { b.Status.Provisioning.State = metal3api.StateInspecting }),
			with(func(h *match.Host) { h.UnusableReason = "is inspecting, not provisioned yet" })},
		"never seen": {aHost(func(b *host) { b.Status = metal3api.BareMetalHostStatus{} }),
			match.Host{Name: "metal3/h", MACs: []string{"52:54:00:00:00:0a"}, UnusableReason: "is new, not provisioned yet"}},
		"being deleted": {aHost(func(b *host) { b.DeletionTimestamp = &end }), with(func(h *match.Host) { h.UnusableReason = "is being deleted" })},
		"not proven": {aHost(func(b *host) { b.Labels[label.Verified] = "false" }),
			with(func(h *match.Host) {
				h.UnusableReason = "is provisioned, but not proven to work yet (label firstlight.dev/verified)"
			})},
		"reads Ignition": {aHost(func(b *host) { b.Annotations = map[string]string{label.UserData: "ignition"} }),
			with(func(h *match.Host) {
				h.UnusableReason = "has an image that reads Ignition; clusters are made of Debian nodes with cloud-init"
			})},
		"externally provisioned": {aHost(func(b *host) { b.Status.Provisioning.State = metal3api.StateExternallyProvisioned }), whole},
		"labels overrule inspection": {aHost(func(b *host) { b.Labels[label.SRIOV], b.Labels[label.QAT] = "false", "true" }),
			with(func(h *match.Host) { h.SRIOV, h.QAT = false, true })},
		"inspection found its devices": {aHost(func(b *host) {
			b.Labels[label.FoundSRIOV], b.Labels[label.FoundQAT] = "false", "true"
		}), with(func(h *match.Host) { h.SRIOV, h.QAT = false, true })},
		"labels overrule its devices": {aHost(func(b *host) {
			b.Labels[label.FoundSRIOV], b.Labels[label.SRIOV] = "false", "true"
			b.Labels[label.FoundQAT], b.Labels[label.QAT] = "true", "false"
		}), whole},
		"claimed": {aHost(func(b *host) {
			b.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Provisioning", Namespace: "default", Name: "edge", FieldPath: "node{w-1}"}
		}), with(func(h *match.Host) { h.Claim = match.Claim{Owner: "Provisioning default/edge", Node: "w-1"} })},
		"holds a cluster": {aHost(func(b *host) {
			b.Status.OperationHistory.Provision.End = end
			b.Annotations = map[string]string{label.Installed: "edge@2023-11-14T22:13:20Z"}
		}), with(func(h *match.Host) { h.PreviousCluster = "edge" })},
		"held one before it was installed again": {aHost(func(b *host) {
			b.Status.OperationHistory.Provision.End = end
			b.Annotations = map[string]string{label.Installed: "edge@2022-11-14T22:13:20Z"}
		}), whole},
	} {
		assert.Equal(t, c.want, hostFacts(c.host), name)
		slimmed, err := trimForCache(c.host.DeepCopy())
		require.NoError(t, err)
		assert.Equal(t, c.want, hostFacts(slimmed.(*host)), "%s: the cache keeps too little", name)
		fromWhole, err := addressHost(c.host, nil)
		require.NoError(t, err)
		fromSlim, err := addressHost(slimmed.(*host), nil)
		require.NoError(t, err)
		assert.Equal(t, fromWhole, fromSlim, "%s: the cache keeps too little", name)
	}
}

func TestSlimForgetsWhatNobodyLooksAt(t *testing.T) {
	slimmed, err := trimForCache(aHost(func(b *host) { b.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}} }))
	require.NoError(t, err)
	b := slimmed.(*host)
	assert.Empty(t, b.ManagedFields)
	assert.Empty(t, b.Status.HardwareDetails.Storage)
	assert.Empty(t, b.Status.HardwareDetails.CPU.Flags)
	other := &corev1.Pod{}
	same, err := trimForCache(other)
	require.NoError(t, err)
	assert.Same(t, other, same)
}

func TestVirtualFunctions(t *testing.T) {
	for model, want := range map[string]bool{"0x8086 0x1572": true, "0x15B3 0x1017": true, "0x8086 0x100e": false, "0x1af4 0x1000": false, "": false, "0x8086": false, "0x8086 ": false} {
		assert.Equal(t, want, hasVirtualFunctions(model), model)
	}
}

func TestHostKeyOfUserData(t *testing.T) {
	const user = "#cloud-config\nssh_keys: {ed25519_private: somebody's, ed25519_public: public of node-1}\n"
	assert.Equal(t, "public of node-1", hostKey([]byte(user)), "what an owner writes is not read")
	assert.Empty(t, hostKey([]byte("#!/bin/sh\n")))
	assert.Empty(t, hostKey([]byte(":::")))
}

func TestLogsAreBounded(t *testing.T) {
	d := clusterDir(t.TempDir())
	for n := range maxLogs + 5 {
		name := filepath.Join("log", "kud-1-install-"+string(rune('a'+n))+".log")
		require.NoError(t, d.saveLog(name, strings.NewReader("x")))
		require.NoError(t, os.Chtimes(d.path(name), time.Unix(int64(n), 0), time.Unix(int64(n), 0)))
	}
	require.NoError(t, d.write("log/setup-kud.log", []byte("the installer's own"), 0o644))
	left, err := filepath.Glob(d.path("log/kud-*"))
	require.NoError(t, err)
	assert.Len(t, left, maxLogs)
	assert.FileExists(t, d.path("log/kud-1-install-y.log"))
	assert.FileExists(t, d.path("log/setup-kud.log"))
}

func TestClusterDirStaysInside(t *testing.T) {
	c := Config{Dir: "/opt/kud"}
	assert.Equal(t, clusterDir("/opt/kud/edge.1"), c.clusterDir("edge.1"))
	for _, name := range []string{"", ".", "..", "../x", "a/b", "/etc"} {
		assert.Equal(t, clusterDir("/opt/kud/.invalid"), c.clusterDir(name), name)
	}
}
