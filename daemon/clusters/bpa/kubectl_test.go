package bpa

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// applyFile is `kubectl apply -f` of a file, as its owner would: what kubectl says, and whether it was content.
func (b *fixture) applyFile(text string) (string, error) {
	b.t.Helper()
	file := filepath.Join(b.t.TempDir(), "file.yaml")
	require.NoError(b.t, os.WriteFile(file, []byte(text), 0o600))
	out, err := b.command("apply", "-f", file).CombinedOutput()
	return strings.TrimSpace(strings.ReplaceAll(string(out), file, "FILE")), err
}

// command is the real kubectl with arguments.
func (b *fixture) command(args ...string) *exec.Cmd {
	return exec.CommandContext(b.t.Context(), b.program, append([]string{"kubectl", "--kubeconfig", b.kubeconfig}, args...)...)
}

// outcome is what the operator makes of a Provisioning: the inventory and the installer's command, or why not.
func (b *fixture) outcome(name string) (installs bool, text string) {
	b.t.Helper()
	p := b.until(name, func(p *v1alpha1.Provisioning) bool {
		switch p.Status.Phase {
		case v1alpha1.PhaseInstalling:
			return p.Status.Job != nil
		case v1alpha1.PhaseRefused, v1alpha1.PhaseWaiting:
			return true
		}
		return false
	})
	if p.Status.Phase != v1alpha1.PhaseInstalling {
		return false, p.Status.Phase + ": " + p.Status.Message
	}
	cluster := p.Status.Cluster
	ini, err := os.ReadFile(filepath.Join(b.dir, cluster, contract.FileInventory))
	require.NoError(b.t, err)
	job := &batchv1.Job{}
	require.NoError(b.t, b.api.Get(b.t.Context(), client.ObjectKey{Namespace: Namespace, Name: kud.JobName(cluster)}, job))
	_, args, _ := strings.Cut(job.Spec.Template.Spec.Containers[0].Args[0], "./installer ")
	var nodes []string
	for _, n := range p.Status.Nodes {
		assert.Contains(b.t, string(ini), n.Name+"  ansible_ssh_host="+n.Address+" ansible_ssh_port=22", "%s: no line in the inventory", name)
		nodes = append(nodes, fmt.Sprintf("%s (%s) at %s", n.Name, strings.Join(n.Roles, ", "), n.Address))
	}
	text = strings.Join(nodes, "; ") + ": " + args
	for _, warning := range p.Status.Warnings {
		text += "\n    " + warning
	}
	return true, text
}

// remove deletes a Provisioning and waits until nothing of it is left, on its hosts neither.
func (b *fixture) remove(name string) {
	b.t.Helper()
	require.NoError(b.t, client.IgnoreNotFound(b.api.Delete(b.t.Context(), &v1alpha1.Provisioning{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})))
	require.Eventually(b.t, func() bool {
		return apierrors.IsNotFound(b.api.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &v1alpha1.Provisioning{}))
	}, 2*time.Minute, 20*time.Millisecond)
	var hosts metal3api.BareMetalHostList
	require.NoError(b.t, b.api.List(b.t.Context(), &hosts))
	for i := range hosts.Items {
		h := &hosts.Items[i]
		before := h.DeepCopy()
		delete(h.Annotations, label.Installed)
		require.NoError(b.t, b.api.Patch(b.t.Context(), h, client.MergeFrom(before)))
	}
}

// vm is a running pod of virtlet.
func (b *fixture) vm(n int) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("vm-%d", n), Annotations: map[string]string{
		"kubernetes.io/target-runtime":       "virtlet.cloud",
		"k8s.v1.cni.cncf.io/networks-status": fmt.Sprintf(`[{"name":"cbr0","mac":"52:54:00:00:aa:%02x"}]`, n),
	}}, Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot:   new(true),
			RunAsUser:      new(int64(65534)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{Name: "vm", Image: "virtlet.cloud/x", SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}}
	require.NoError(b.t, b.api.Create(b.t.Context(), p))
	ip := fmt.Sprintf("10.9.0.%d", n)
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
	require.NoError(b.t, b.api.Status().Update(b.t.Context(), p))
}

// TestFilesOfICN applies, with the real kubectl, a file of every shape that a Provisioning had in ICN's history: 42
// files, and two that its scripts wrote. What becomes of each is in testdata/icn-provisionings.txt.
func TestFilesOfICN(t *testing.T) {
	b := newFixture(t)
	for n := 1; n <= 5; n++ {
		b.host(n)
		b.vm(n)
	}
	stop := b.operate("icn.log")
	defer stop()
	text, err := os.ReadFile("testdata/icn-provisionings.yaml")
	require.NoError(t, err)
	documents := strings.Split(string(text), "---\n")
	assert.Len(t, documents, 44)
	var got strings.Builder
	installed := 0
	for _, document := range documents {
		what, _, _ := strings.Cut(strings.TrimPrefix(document, "# "), "\n")
		u := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &u))
		name, _ := u["metadata"].(map[string]any)["name"].(string)
		said, err := b.applyFile(document)
		if err != nil {
			fmt.Fprintf(&got, "%s\n  kubectl: %s\n", what, strings.ReplaceAll(said, "\n", "\n    "))
			continue
		}
		installs, outcome := b.outcome(name)
		if installs {
			installed++
		}
		fmt.Fprintf(&got, "%s\n  %s\n", what, outcome)
		b.remove(name)
	}
	t.Logf("%d files, of which %d become a cluster:\n%s", len(documents), installed, got.String())
	assert.Equal(t, 39, installed, "files that become a cluster")
	goldentest.Check(t, "testdata/icn-provisionings.txt", got.String())
}

// TestProposalsAreAppliedByKubectl: what the operator writes for kubectl, the real kubectl takes, and again after an
// edit, for one host to seven.
func TestProposalsAreAppliedByKubectl(t *testing.T) {
	b := newFixture(t)
	stop := b.operate("proposal.log")
	defer stop()
	for n := 1; n <= 7; n++ {
		b.host(n)
		p := &operator.Proposals{
			Config: operator.Config{Namespace: Namespace, Site: "rack-7", Proposal: operator.ProposalShow},
			Client: b.api, Reader: b.api, Now: time.Now,
		}
		require.NoError(t, p.Propose(context.Background()))
		m := &corev1.ConfigMap{}
		require.NoError(t, b.api.Get(t.Context(), client.ObjectKey{Namespace: Namespace, Name: operator.ProposalName}, m))
		said, err := b.applyFile(m.Data["provisionings.yaml"])
		require.NoError(t, err, said)
		installs, text := b.outcome("rack-7")
		assert.True(t, installs, "%d hosts: %s", n, text)
		assert.Equal(t, n, strings.Count(text, " at 172.22.0."), "%d hosts: %s", n, text)
		assert.NotContains(t, text, "without a label", "kubectl removed what the proposal says")
		said, err = b.applyFile(m.Data["provisionings.yaml"])
		require.NoError(t, err, said)
		assert.Contains(t, said, "unchanged")
		b.remove("rack-7")
	}
	b.awaitAnswer("Hosts that were considered for a node without MAC and not chosen.", "explain", "bpa.status.rejected")
	b.awaitAnswer("No resources found", "get", "firstlight", "-A") // the category
}

// awaitAnswer asks kubectl until it prints a text: the API server serves a definition's objects before its schema.
func (b *fixture) awaitAnswer(want string, args ...string) {
	b.t.Helper()
	require.EventuallyWithT(b.t, func(t *assert.CollectT) {
		out, err := b.command(args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), want)
	}, 3*time.Minute, time.Second)
}
