package kube

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/manifest"
)

// other is a site that says everything that Config can hold.
func other() Config {
	return Config{Address: netip.MustParseAddr("10.1.2.3"), PodCIDR: netip.MustParsePrefix("10.9.0.0/16"),
		ServiceCIDR: netip.MustParsePrefix("10.8.0.0/20"), Nameservers: []netip.Addr{netip.MustParseAddr("10.1.2.53")},
		Images: "/usr/share/firstlight/images"}
}

func TestWrittenFiles(t *testing.T) {
	for name, in := range map[string]struct {
		config Config
		world  HostTraits
	}{
		"defaults":  {Defaults(), HostTraits{Systemd: true, Unified: true, OOMScores: true, Processors: 4}},
		"other":     {other(), HostTraits{Systemd: true, Unified: true, OOMScores: true, Processors: 3}},
		"two-cores": {Defaults(), HostTraits{Processors: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			runtime, err := runtimeFiles(in.config, in.world)
			require.NoError(t, err)
			node, err := nodeFiles(in.config, in.world, "0123456789abcdef")
			require.NoError(t, err)
			network, err := networkFile([]string{"10.244.0.0/24"})
			require.NoError(t, err)
			require.True(t, json.Valid(network.data))
			for _, f := range append(append(runtime, node...), network) {
				fmt.Fprintf(&b, "=== %s %o\n%s", f.path, f.mode, f.data)
			}
			for _, name := range []string{"kubeadm.yaml", "kube-proxy.yaml", "coredns.yaml"} {
				text, err := manifestOf(name, in.config, in.world)
				require.NoError(t, err)
				fmt.Fprintf(&b, "=== %s\n%s", name, text)
			}
			goldentest.Check(t, "testdata/"+name+".golden", b.String())
			_, err = systemObjects(in.config, in.world)
			require.NoError(t, err, "objects are not YAML")
		})
	}
}

func TestDriver(t *testing.T) {
	assert.Equal(t, "systemd", HostTraits{Systemd: true, Unified: true}.Driver())
	assert.Equal(t, "cgroupfs", HostTraits{Systemd: true}.Driver(), "systemd does not delegate version 1 safely")
	assert.Equal(t, "cgroupfs", HostTraits{Unified: true}.Driver())
}

// TestWhetherScoresMayBeLowered: in a container the kernel refuses it, also where PID 1 is systemd.
func TestWhetherScoresMayBeLowered(t *testing.T) {
	for score, want := range map[string]bool{"0\n": true, "-900\n": true, "-1000\n": true, "none": false} {
		file := filepath.Join(t.TempDir(), "oom_score_adj")
		require.NoError(t, os.WriteFile(file, []byte(score), 0o644))
		assert.Equal(t, want, lowersOOMScore(file), score)
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, strings.TrimSpace(score), strings.TrimSpace(string(after)), "it is put back")
	}
	// The kernel reads and does not write: sysfs's and proc's files answer so to who may not.
	assert.False(t, lowersOOMScore("/proc/self/oom_score"))
	assert.False(t, lowersOOMScore(filepath.Join(t.TempDir(), "absent")))
}

// TestTheKubeletKnowsAUserNamespace: what the kernel refuses it there would end it.
func TestTheKubeletKnowsAUserNamespace(t *testing.T) {
	for text, want := range map[string]bool{
		"0 0 4294967295\n":              false,
		"0 1000 1\n 1  100000  65536\n": true,
	} {
		file := filepath.Join(t.TempDir(), "uid_map")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		assert.Equal(t, want, isUserNamespace(file), text)

		files, err := nodeFiles(Defaults(), HostTraits{UserNamespace: want}, "")
		require.NoError(t, err)
		assert.Equal(t, want, strings.Contains(string(files[0].data), "\nfeatureGates: {KubeletInUserNamespace: true}\n"))
	}
	assert.False(t, isUserNamespace(filepath.Join(t.TempDir(), "absent")), "a kernel without them")
}

// cluster is a cluster in a directory, with a clock that can be set and no programs.
func cluster(t *testing.T) (*Cluster, *time.Time) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return &Cluster{desired: Defaults(), Root: t.TempDir(), Now: func() time.Time { return now }, HostTraits: func() HostTraits { return HostTraits{} },
		Run: func(context.Context, io.Reader, string, ...string) (string, error) {
			return "", errors.New("no programs here")
		}}, &now
}

func TestCertificatesFollowTheClock(t *testing.T) {
	year := 365 * 24 * time.Hour
	for name, in := range map[string]struct {
		move  time.Duration
		fresh bool
	}{
		"same day":                {0, false},
		"ten years back":          {-10 * year, false},
		"before 2000":             {-30 * year, false},
		"seven months on":         {7 * 30 * 24 * time.Hour, false},
		"nine months on":          {9 * 30 * 24 * time.Hour, true},
		"ten years on":            {10 * year, true},
		"shelf and then ten more": {20 * year, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, now := cluster(t)
			first, err := c.mintMissing()
			require.NoError(t, err)
			assert.Len(t, first, len(leaves(c.config())))
			require.NoError(t, c.certificatesDone())
			*now = now.Add(in.move)
			assert.Equal(t, in.fresh, c.certificatesDone() != nil)
			again, err := c.mintMissing()
			require.NoError(t, err)
			assert.Equal(t, in.fresh, len(again) > 0)
			require.NoError(t, c.certificatesDone())
			for _, l := range leaves(c.config()) {
				cert, _, err := c.readPair(l.path)
				require.NoError(t, err)
				ca, _, err := c.readPair(l.authority)
				require.NoError(t, err)
				pool := x509.NewCertPool()
				pool.AddCert(ca)
				// What a peer with the same clock does. Before 2000 nothing of ours is valid, nor is anybody's.
				_, err = cert.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: effectiveNow(*now), KeyUsages: l.usages})
				assert.NoError(t, err, l.path)
			}
		})
	}
}

func TestCertificatesFollowTheSite(t *testing.T) {
	c, _ := cluster(t)
	_, err := c.mintMissing()
	require.NoError(t, err)
	c.Configure(other())
	require.ErrorContains(t, c.certificatesDone(), "is for another address")
	fresh, err := c.mintMissing()
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{pkiDir + "/apiserver", nodeServer}, fresh)
}

func TestTornCertificates(t *testing.T) {
	for name, harm := range map[string]func(dir string) error{
		"leaf without key":    func(d string) error { return os.Remove(d + "/apiserver.key") },
		"leaf empty":          func(d string) error { return os.Truncate(d+"/apiserver.crt", 0) },
		"leaf of another key": func(d string) error { return os.Rename(d+"/admin.key", d+"/apiserver.key") },
		"authority key only":  func(d string) error { return os.Remove(d + "/front-proxy-ca.crt") },
		"no account key":      func(d string) error { return os.Remove(d + "/sa.pub") },
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := cluster(t)
			_, err := c.mintMissing()
			require.NoError(t, err)
			require.NoError(t, harm(c.path(pkiDir)))
			require.Error(t, c.certificatesDone())
			_, err = c.mintMissing()
			require.NoError(t, err)
			require.NoError(t, c.certificatesDone())
		})
	}
	c, _ := cluster(t)
	_, err := c.mintMissing()
	require.NoError(t, err)
	require.NoError(t, os.Truncate(c.path(caPath+".key"), 10))
	_, err = c.mintMissing()
	require.Error(t, err, "a damaged authority was replaced: everything that trusts it is cut off")
}

func TestManifestsAreSealed(t *testing.T) {
	c, _ := cluster(t)
	c.Run = func(_ context.Context, _ io.Reader, name string, args ...string) (string, error) {
		require.Equal(t, "kubeadm", name)
		for _, pod := range manifest.StaticPods() {
			require.NoError(t, writeFile(c.path(manifestDir+"/"+pod+".yaml"), []byte("kind: Pod # "+pod+"\n"), 0o600))
		}
		return "", nil
	}
	require.Error(t, c.manifestsDone())
	require.NoError(t, c.writeManifests(t.Context()))
	require.NoError(t, c.manifestsDone())
	require.NoError(t, os.Truncate(c.path(manifestDir+"/etcd.yaml"), 3))
	require.Error(t, c.manifestsDone(), "a torn manifest counts as written")
	require.NoError(t, c.writeManifests(t.Context()))
	c.Configure(other())
	require.Error(t, c.manifestsDone(), "manifests of another address count as written")
}

func TestPodsVerdict(t *testing.T) {
	pod := func(name string, ready corev1.ConditionStatus) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}}
	}
	var pods []corev1.Pod
	for _, name := range append(manifest.StaticPods(), "kube-proxy", "coredns") {
		pods = append(pods, pod(name+"-x", corev1.ConditionTrue))
	}
	dns := &appsv1.Deployment{Status: appsv1.DeploymentStatus{UpdatedReplicas: 1}}
	require.NoError(t, podsVerdict(pods, dns))
	require.ErrorContains(t, podsVerdict(pods[:5], dns), "pod of coredns is not there")
	// The control plane's pods are mirrors: they may come late, a failed one is named.
	require.NoError(t, podsVerdict(pods[1:], dns))
	starting, yes, no := pod("etcd-x", corev1.ConditionFalse), true, false
	pods[0] = starting
	require.ErrorContains(t, podsVerdict(pods, dns), "pod of etcd is Running but not ready")
	pods[0].Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, Started: &no}}
	require.NoError(t, podsVerdict(pods, dns))
	pods[0].Status.ContainerStatuses[0].Started = &yes
	require.ErrorContains(t, podsVerdict(pods, dns), "pod of etcd is Running but not ready")
	pods[0].Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}}
	require.ErrorContains(t, podsVerdict(pods, dns), "pod of etcd is waiting: CrashLoopBackOff back-off 10s")
	pods[0] = corev1.Pod{ObjectMeta: starting.ObjectMeta, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	require.NoError(t, podsVerdict(pods, dns))
	pods[0] = pod("etcd-x", corev1.ConditionTrue)
	pods[5] = pod("coredns-x", corev1.ConditionFalse)
	require.ErrorContains(t, podsVerdict(pods, dns), "pod of coredns is Running but not ready")
	// The old pod of a rollout may be gone while the new one is ready.
	require.NoError(t, podsVerdict(append(pods, pod("coredns-y", corev1.ConditionTrue)), dns))
	require.ErrorContains(t, podsVerdict(append(pods, pod("coredns-y", corev1.ConditionTrue)), &appsv1.Deployment{}), "rolled out")
}

func TestNodeState(t *testing.T) {
	c, _ := cluster(t)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: NodeName, Labels: map[string]string{roleLabel: ""}}}
	node.Status.NodeInfo.BootID = strings.TrimSpace(string(boot))
	require.ErrorContains(t, c.nodeState(node), "no addresses for pods")
	node.Spec.PodCIDRs = []string{c.expectedPodCIDR()}
	require.ErrorContains(t, c.nodeState(node), "conflist is not as wanted")
	require.NoError(t, c.expectNetwork())
	require.ErrorContains(t, c.nodeState(node), "has not said how it is")
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	require.NoError(t, c.nodeState(node))
	node.Spec.PodCIDRs = []string{"10.244.7.0/24"}
	require.Error(t, c.nodeState(node), "pods would get addresses that are another node's")
	node.Spec.PodCIDRs = []string{c.expectedPodCIDR()}
	node.Status.NodeInfo.BootID = "of the boot before"
	require.ErrorContains(t, c.nodeState(node), "since this boot")
}

// What is pinned for the build and what is asked for at run time are one.
func TestVersionsAreTheRecipes(t *testing.T) {
	recipe, err := os.ReadFile("../../../assets/recipe.yaml")
	require.NoError(t, err)
	for _, text := range []string{"version.gitVersion=" + assets.KubernetesVersion, "tags: [" + assets.EtcdVersion + "]", "tags: [" + assets.CoreDNSVersion + "]",
		`tags: ["` + assets.PauseVersion + `"]`, "containerd/version.Version=" + assets.ContainerdVersion + "]"} {
		assert.Contains(t, string(recipe), text)
	}
	for module, version := range map[string]string{"kubernetes": "k8s.io/kubernetes " + assets.KubernetesVersion, "etcd": "go.etcd.io/etcd/server/v3 " + assets.EtcdVersion,
		"coredns": "github.com/coredns/coredns " + assets.CoreDNSVersion, "containerd": "github.com/containerd/containerd " + assets.ContainerdVersion} {
		mod, err := os.ReadFile("../../../assets/build/" + module + "/go.mod")
		require.NoError(t, err)
		assert.Contains(t, string(mod), version)
	}
}

// TestClientsFollowTheSite: an edited provisioning address is where the API server listens from then on.
func TestClientsFollowTheSite(t *testing.T) {
	c, _ := cluster(t)
	_, err := c.mintMissing()
	require.NoError(t, err)
	before, err := c.REST()
	require.NoError(t, err)
	again, err := c.REST()
	require.NoError(t, err)
	assert.Same(t, before, again, "a client is made for every question")
	c.Configure(other())
	after, err := c.REST()
	require.NoError(t, err)
	assert.Equal(t, "https://172.22.0.1:6443", before.Host)
	assert.Equal(t, "https://10.1.2.3:6443", after.Host)
}

// TestTheDaemonIsNotRootsKubectl: what the daemon alone may say of hosts is known by its user. An appliance that comes
// from a version without that user gets it at its next start; the version before finds what it needs as it was.
func TestTheDaemonIsNotRootsKubectl(t *testing.T) {
	c, _ := cluster(t)
	_, err := c.mintMissing()
	require.NoError(t, err)
	for _, ext := range []string{".crt", ".key"} {
		require.NoError(t, os.Remove(c.path(daemonClient+ext)))
	}
	require.Error(t, c.certificatesDone())
	fresh, err := c.mintMissing()
	require.NoError(t, err)
	assert.Equal(t, []string{daemonClient}, fresh)

	config, err := c.REST()
	require.NoError(t, err)
	for file, want := range map[string]string{config.CertFile: DaemonUser, c.path(pkiDir + "/admin.crt"): AdminUser} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		assert.Equal(t, want, cert.Subject.CommonName)
	}
	assert.Error(t, CheckPersonName(strings.TrimPrefix(DaemonUser, PersonPrefix)), "a person may take the name")
}
