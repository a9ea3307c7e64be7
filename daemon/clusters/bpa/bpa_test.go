package bpa

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/operator"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/kpa/builtin"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/daemonpod"
)

func readSite(t *testing.T, text string) *site.Site {
	s, problems := site.Load("site.yaml", []byte(text))
	require.Empty(t, problems)
	return s.WithDefaults()
}

// TestClustersOfASite: what site.yaml says in its words becomes what ICN's operators know.
func TestClustersOfASite(t *testing.T) {
	text, err := os.ReadFile("../../../assets/site/testdata/valid/full.yaml")
	require.NoError(t, err)
	var got strings.Builder
	for _, p := range Provisionings(readSite(t, string(text))) {
		_, problems := match.ParseNodes(p.Spec)
		assert.Empty(t, problems, p.Name)
		doc, err := yaml.Marshal(map[string]any{"metadata": p.ObjectMeta, "spec": p.Spec})
		require.NoError(t, err)
		got.WriteString("---\n" + string(doc))
	}
	goldentest.Check(t, "testdata/full.yaml", got.String())
}

// TestAClusterKnowsHowManyHostsMayCome where the site discovers them, and awaits none elsewhere.
func TestAClusterKnowsHowManyHostsMayCome(t *testing.T) {
	const cluster = "clusters: [{name: edge, workers: [{count: 2}]}]\n"
	for text, want := range map[string]string{
		"nodeDefaults: {bmc: {username: a, password: b}}\nnetworks: {bmc: {cidr: 10.30.0.0/24}}\ndiscover: {count: 3}\n": "3",
		"nodes: [{name: a, macs: ['52:54:00:00:00:01']}, {name: b, macs: ['52:54:00:00:00:02']}," +
			" {name: c, macs: ['52:54:00:00:00:03']}]\n": "",
	} {
		all := Provisionings(readSite(t, text+cluster))
		require.Len(t, all, 1)
		assert.Equal(t, want, all[0].Annotations[label.ExpectedHosts])
	}
}

func TestWhatIsProposed(t *testing.T) {
	const nodes = "nodes:\n- {name: a, macs: ['52:54:00:00:00:01']}\n"
	for text, want := range map[string]string{
		"name: x\n":                           operator.ProposalShow, // nothing that could be used
		nodes:                                 operator.ProposalApply,
		nodes + "clusters: []\n":              operator.ProposalShow,
		nodes + "clusters:\n- {name: edge}\n": operator.ProposalOff,
	} {
		s := readSite(t, text)
		assert.Equal(t, want, ProposalMode(s), text)
	}
}

func TestObjects(t *testing.T) {
	all, err := Operator{Site: "rack-7", Proposal: "show", LeaseFile: "/run/x/dhcpd.leases", LeaseDir: "/run/x", Agent: "/run/y/ssh.sock", Digest: "d1"}.Objects()
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, o := range all {
		kinds[o.GetObjectKind().GroupVersionKind().Kind]++
		assert.NotEmpty(t, o.GetName())
	}
	assert.Equal(t, 3, kinds["CustomResourceDefinition"])
	pod := all[len(all)-1].(*appsv1.Deployment).Spec.Template
	assert.Equal(t, "d1", pod.Annotations["firstlight.dev/binary"], "another daemon would not start another pod")
	assert.Equal(t, "firstlight.internal/firstlight:0.1.0", pod.Spec.Containers[0].Image)
	recipe, err := os.ReadFile("../../../assets/recipe.yaml")
	require.NoError(t, err)
	_, tag, _ := strings.Cut(daemonpod.Image, ":")
	assert.Contains(t, string(recipe), "name: firstlight, tags: ["+tag+"]", "the image is not on the stick")
}

func TestStateOfACluster(t *testing.T) {
	assert.Equal(t, status.ClusterNew, stateOf(""))
	assert.Equal(t, status.ClusterWaiting, stateOf(v1alpha1.PhaseWaiting))
	assert.Equal(t, status.ClusterInstalling, stateOf(v1alpha1.PhaseInstalling))
}

// TestAClusterHasTheUpdatesOfItsNamespace: one that is named as a cluster of another namespace says nothing about it.
func TestAClusterHasTheUpdatesOfItsNamespace(t *testing.T) {
	meta := func(namespace, name, cluster string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"cluster": cluster}}
	}
	at := metav1.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	failed := v1alpha1.NodeUpdateStatus{
		Phase: v1alpha1.PhaseFailed, NodesReady: "1/2", Message: "node w: does not answer",
		Nodes: []v1alpha1.UpdatedNode{
			{Name: "m", ControlPlane: true, Phase: v1alpha1.NodeUpToDate, Version: "v1.36.3", Changes: 2, Updated: &at},
			{Name: "w", Phase: v1alpha1.NodeUpdateFailed, Message: "does not answer"},
		},
	}
	spec := v1alpha1.NodeUpdateSpec{
		Paused: true, MaxUnavailable: 3, Reboot: v1alpha1.RebootAlways,
		Window: &v1alpha1.Window{Days: []string{"Sat"}, Start: "22:00", Hours: 4},
	}
	all := StatusOf([]v1alpha1.Provisioning{{ObjectMeta: meta("default", "p", "edge")}}, []v1alpha1.NodeUpdate{
		{ObjectMeta: meta("default", "november", "edge"), Spec: spec, Status: failed},
		{ObjectMeta: meta("alpha", "theirs", "edge")},
		{ObjectMeta: meta("default", "other", "north")},
		{ObjectMeta: meta("default", "december", "edge")},
	}, nil)
	assert.Equal(t, []status.NodeUpdate{
		{
			Name: "default/november", State: "failed", Nodes: "1/2", Text: "node w: does not answer",
			Paused: true, Workers: 3, Reboot: "Always",
			Window: &status.UpdateWindow{Days: []string{"Sat"}, Start: "22:00", Hours: 4},
			Members: []status.UpdatedNode{
				{Name: "m", State: "UpToDate", Version: "v1.36.3", Changes: 2, Updated: at.Time},
				{Name: "w", State: "Failed", Text: "does not answer"},
			},
		},
		{Name: "default/december", State: "new", Workers: 1, Reboot: "IfRequired"},
	}, all[0].Updates)
	assert.True(t, all[0].Updates[0].IsStuck())
	assert.Equal(t, stateOf(v1alpha1.PhaseUpdating), status.NodeUpdateUpdating)
}

func TestAClusterHasTheChecksOfItsVerification(t *testing.T) {
	at := metav1.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	all := StatusOf([]v1alpha1.Provisioning{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "edge"},
		Status: v1alpha1.ProvisioningStatus{
			Checks: []v1alpha1.CheckStatus{
				{Name: "DNS", Outcome: v1alpha1.CheckPassed, Message: "resolves", Time: at},
				{Name: "Service", Outcome: v1alpha1.CheckFailed, Message: "timeout", Time: at},
			},
			Job: &v1alpha1.JobStatus{Log: "/opt/kud/multi-cluster/edge/log/1.log"},
		},
	}}, nil, nil)
	assert.Equal(t, []status.Cluster{{
		Name: "edge", State: status.ClusterNew, Namespace: "default", Kind: status.KindProvisioning,
		Checks: []status.Check{
			{Name: "DNS", State: status.CheckOK, Text: "resolves"}, {Name: "Service", State: status.CheckFailed, Text: "timeout"},
		},
		Checked: at.Time,
		Log:     "/opt/kud/multi-cluster/edge/log/1.log",
	}}, all)
}

// TestDocs: docs/bpa.md explains every reason, and every test of the operator that docs/tests.md names is there.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/bpa.md")
	require.NoError(t, err)
	for _, reason := range operator.Reasons() {
		assert.Contains(t, string(text), "`"+reason+"`", "a reason that the page does not explain")
	}
	list := strings.Join(builtin.Names(), ", ")
	for _, m := range regexp.MustCompile(`it has ([a-z-]+(?:, [a-z-]+)*); take them out`).FindAllStringSubmatch(string(text), -1) {
		assert.Equal(t, list, m[1], "another list of plugins than the stick's")
	}
	assert.Contains(t, string(text), "it has "+list+";")
	assert.NotContains(t, string(text), "cmk, emco", "KUD's list")
	var code strings.Builder
	for _, dir := range []string{".", "../contract", "../../engine/remote", "../../appliance/vault", "../../../image/lab/testbed/sandbox"} {
		require.NoError(t, filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, "_test.go") {
				return err
			}
			b, err := os.ReadFile(file)
			code.Write(b)
			return err
		}))
	}
	tests, err := os.ReadFile("../../../docs/tests.md")
	require.NoError(t, err)
	_, own, found := strings.Cut(string(tests), "\n### The operator\n")
	require.True(t, found)
	own, _, _ = strings.Cut(own, "\n## ")
	named := regexp.MustCompile("`((?:Test|test|Fuzz)[A-Z][A-Za-z]+)`").FindAllStringSubmatch(own, -1)
	assert.Greater(t, len(named), 30)
	for _, m := range named {
		assert.Contains(t, code.String(), "func "+m[1]+"(", "the page names a test that is not there")
	}
}

// The kinds are read once; whoever gets them changes copies.
func TestKindsStayAsTheyWereRead(t *testing.T) {
	var digests []string
	for range 2 {
		objects, err := crdObjects()
		require.NoError(t, err)
		set, err := apply.New(owner, objects...)
		require.NoError(t, err)
		digests = append(digests, set.Objects[0].GetAnnotations()[apply.Annotation])
	}
	assert.Equal(t, digests[0], digests[1])
}
