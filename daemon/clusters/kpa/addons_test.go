package kpa

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/kpa/builtin"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

func TestAddOnsComeInICNsOrder(t *testing.T) {
	for asked, want := range map[string]string{
		"multus":                  "multus",
		"sriov nfd":               "sriov<nfd nfd",
		"kubevirt sriov multus":   "kubevirt<sriov<multus sriov<multus multus",
		"emco nfd qat":            "emco<nfd<qat nfd qat<nfd",
		"our-own":                 "our-own",
		"nfd our-own emco":        "nfd our-own<nfd emco<nfd",
		"emco second third":       "emco second<emco third<second",
		"multus multus Upper a_b": "multus",
	} {
		a := AddOns{Namespace: "default", Cluster: "c", Names: strings.Fields(asked)}
		var have []string
		var nodes []plan.Node
		components, err := a.components()
		require.NoError(t, err)
		for _, c := range components {
			n := plan.Node{Name: c.GetName()}
			for _, d := range c.(*v1alpha1.Component).Spec.DependsOn {
				n.DependsOn = append(n.DependsOn, d.Name)
			}
			nodes = append(nodes, n)
			have = append(have, strings.Join(append([]string{n.Name}, n.DependsOn...), "<"))
		}
		assert.Equal(t, want, strings.ReplaceAll(strings.Join(have, " "), "c-", ""), asked)
		assert.Empty(t, plan.FindCycles(nodes), asked)
	}
}

func TestASiteMayNameAllAddOns(t *testing.T) {
	field, found := reflect.TypeFor[site.Cluster]().FieldByName("AddOns")
	require.True(t, found)
	names := strings.Split(field.Tag.Get("enum"), "|")
	assert.ElementsMatch(t, append(slices.Clone(known), orchestrators...), names)
	assert.Subset(t, known, builtin.Names(), "the stick has them")
}

func TestAnAddOnWithoutItsHardwareIsSkipped(t *testing.T) {
	a := AddOns{Owner: metav1.OwnerReference{Name: "p1"}, Cluster: "edge"}
	made := func(name string, all ...string) *v1alpha1.Component {
		c, err := a.component(name, all)
		require.NoError(t, err)
		return c
	}
	assert.Nil(t, made("qat", "qat").Spec.Requires, "nobody labels nodes")
	c := made("qat", "nfd", "qat")
	assert.Equal(t, hardware["qat"], c.Spec.Requires.NodeLabels)
	assert.Empty(t, c.Spec.Requires.OnMissing, "skipped is the default")
	assert.Equal(t, "edge-qat", c.Name)
	assert.Equal(t, "qat", c.Spec.Source.Folder)
	assert.Equal(t, []string{"edge"}, c.Spec.Clusters)

	c = made("virtual-machines", "multus", "nfd", "qat", "virtual-machines")
	assert.Equal(t, []v1alpha1.Dependency{{Name: "edge-multus"}, {Name: "edge-qat", OrSkipped: true}}, c.Spec.DependsOn,
		"machines run without such hardware, too")
}

// Two add-ons run, which shows little: one has to have metrics, the other to keep what is written to a volume.
func TestAddOnsShowThatTheyWork(t *testing.T) {
	all, err := AddOns{Cluster: "edge", Names: []string{"metrics-server", "local-path-provisioner", "nfd"}}.components()
	require.NoError(t, err)
	require.Len(t, all, 3)
	specs := map[string]v1alpha1.ComponentSpec{}
	for _, c := range all {
		specs[c.GetName()] = c.(*v1alpha1.Component).Spec
	}
	assert.Equal(t, "NodeMetrics", specs["edge-metrics-server"].HealthExpr[0].Kind)
	assert.Nil(t, specs["edge-metrics-server"].SelfTest)
	assert.Nil(t, specs["edge-nfd"].SelfTest)

	require.NotNil(t, specs["edge-local-path-provisioner"].SelfTest)
	var job batchv1.JobSpec
	require.NoError(t, json.Unmarshal(specs["edge-local-path-provisioner"].SelfTest.Job.Raw, &job))
	assert.Equal(t, assets.InstallerImage, job.Template.Spec.Containers[0].Image)
	claim := job.Template.Spec.Volumes[0].Ephemeral.VolumeClaimTemplate.Spec
	assert.Equal(t, "local-path", *claim.StorageClassName)
}

func TestStatusOfAComponent(t *testing.T) {
	k := &v1alpha1.Component{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "edge-qat"}}
	assert.Equal(t, status.Component{Name: "default/edge-qat", State: "new"}, summarize(k))
	k.Status = v1alpha1.ComponentStatus{Phase: v1alpha1.PhaseSkipped, Ready: "0/1", Message: "no node", Clusters: []v1alpha1.ClusterStatus{
		{Name: "edge", Phase: v1alpha1.PhaseSkipped, Reason: plan.ReasonRequirements, Message: "no node"},
	}}
	assert.Equal(t, status.Component{
		Name: "default/edge-qat", State: "skipped", Clusters: "0/1", Text: "no node",
		On: []status.ComponentOn{{Cluster: "edge", State: "skipped", Reason: plan.ReasonRequirements, Text: "no node"}},
	}, summarize(k))
}
