package nodes_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// shopChart has a kind, a StatefulSet, five images, and hooks.
const shopChart = "../../../../pack/testdata/shop"

// TestAChartOnACluster: a chart is packed with its images, uploaded, installed on a cluster of two nodes that reach no
// registry but the appliance's, upgraded, rolled back, and removed. Each of its pods runs.
func TestAChartOnACluster(t *testing.T) {
	long(t)
	b := newWhole(t, "chart", 2)
	for i, s := range b.Servers {
		b.host(i+1, s)
	}
	b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {name: edge, namespace: default, labels: {cluster: edge, owner: default}},
spec: {masters: [{master-1: {mac-address: '52:54:00:00:00:01'}}], workers: [{worker-2: {mac-address: '52:54:00:00:00:02'}}]}}`)
	b.until("bpa", "edge")
	operator, err := sandbox.NewUploader(b.ctx, b.Appliance, t.TempDir(), "default")
	require.NoError(t, err)

	s := &shopTrial{bench: b, operator: operator, dir: t.TempDir()}
	for name, args := range map[string][]string{"database": {"serve"}, "web": {"serve"}, "order": nil, "task": nil, "wait": nil} {
		file := filepath.Join(s.dir, name+".tar")
		b.greeter(file, "registry.example/shop/"+name+":1", args...)
		s.images = append(s.images, "--from", file)
	}
	s.record("kubectl", "create -f shop.yaml", func() string {
		b.apply(`{apiVersion: kpa.akraino.org/v1alpha1, kind: Component, metadata: {name: shop, namespace: default},
spec: {clusters: [edge], source: {bundle: {name: shop, version: 1.0.0}}}}`)
		return ""
	})
	s.await(v1alpha1.PhaseWaiting, "")

	s.push("1.0.0")
	s.await(v1alpha1.PhaseReady, "1.0.0-")
	s.list()
	s.push("2.0.0", "--version", "2.0.0", "--set", "replicas=2")
	s.change("2.0.0")
	s.await(v1alpha1.PhaseReady, "2.0.0-")
	s.list()
	s.change("1.0.0")
	s.await(v1alpha1.PhaseReady, "1.0.0-")
	s.list()
	assert.Contains(t, b.kubectl("-n", "shop", "get", "job", "restore", "--no-headers"), "Complete", "the rollback's hook")

	s.record("kubectl", "delete kc shop", func() string { return b.appliance("kubectl", "delete", "kc", "shop", "--timeout=5m") })
	s.record("kubectl", "--kubeconfig edge.conf -n shop get all,configmaps -l kpa.akraino.org/name=shop", func() string {
		left := b.kubectl("-n", "shop", "get", "all,configmaps", "-l", "kpa.akraino.org/name=shop", "--ignore-not-found")
		assert.Empty(t, left)
		return left
	})
	b.kubectl("get", "crd", "orders.shop.example") // of the chart's folder crds: it stays

	t.Log("\n" + s.printed.String())
	goldentest.WriteBlock(t, "../../../../../docs/addons.md", "chart", s.printed.String())
}

// shopTrial is the chart's way from a workstation to a cluster, and what was printed on it.
type shopTrial struct {
	*bench
	operator *sandbox.Uploader
	dir      string
	images   []string // arguments of pack

	printed strings.Builder
}

// record prints a command, and what do returns for it.
func (s *shopTrial) record(program, args string, do func() string) {
	s.t.Helper()
	fmt.Fprintf(&s.printed, "$ %s %s\n%s", program, args, do())
}

// push packs a version of the chart and brings it to the appliance.
func (s *shopTrial) push(version string, more ...string) {
	s.t.Helper()
	archive := "shop-" + version + ".tar"
	file := filepath.Join(s.dir, archive)
	words := append([]string{"pack shop", archive}, more...)
	s.record("firstlight", strings.Join(words, " ")+" --from images", func() string {
		args := append([]string{shopChart, file, "--namespace", "shop"}, more...)
		out, err := s.operator.Pack(s.ctx, append(args, s.images...)...)
		require.NoError(s.t, err)
		return digest.ReplaceAllString(strings.ReplaceAll(out, file, archive), "$1")
	})
	s.record("firstlight", "artifact push "+archive+" container/shop-"+version+" --owner default --cluster edge", func() string {
		_, err := s.operator.Artifact(s.ctx, "push", file, "container/shop-"+version)
		require.NoError(s.t, err)
		return ""
	})
}

// digest is one of an image, of which the beginning is enough for people.
var digest = regexp.MustCompile(`(sha256[:-][0-9a-f]{12})[0-9a-f]{52}`)

func (s *shopTrial) change(version string) {
	s.t.Helper()
	patch := `{"spec":{"source":{"bundle":{"version":"` + version + `"}}}}`
	s.record("kubectl", "patch kc shop --type=merge -p '"+patch+"'", func() string {
		return s.appliance("kubectl", "patch", "kc", "shop", "--type=merge", "-p", patch)
	})
}

// await waits for a phase with a revision that begins so, and prints what a person sees then.
func (s *shopTrial) await(phase, revision string) {
	s.t.Helper()
	s.untilComponents(phase+" "+revision, func(all []v1alpha1.Component) bool {
		return countPhase(all, phase) == 1 && strings.HasPrefix(all[0].Status.Revision, revision)
	})
	s.record("kubectl", "get kc shop -o wide", func() string { return s.appliance("kubectl", "get", "kc", "shop", "-o", "wide") })
}

// list prints the chart's pods, which all have come to what they are to.
func (s *shopTrial) list() {
	s.t.Helper()
	const columns = "custom-columns=POD:.metadata.name,NODE:.spec.nodeName,PHASE:.status.phase,IMAGE:.spec.containers[0].image"
	s.record("kubectl", "--kubeconfig edge.conf -n shop get pods", func() string {
		out := digest.ReplaceAllString(s.kubectl("-n", "shop", "get", "pods", "-o", columns), "$1")
		for line := range strings.Lines(out) {
			assert.Regexp(s.t, ` (PHASE|Running|Succeeded) `, line)
		}
		return out
	})
}
