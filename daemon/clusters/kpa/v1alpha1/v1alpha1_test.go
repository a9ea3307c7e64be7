package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/assets/crd/crdtest"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

const whole = `
apiVersion: kpa.akraino.org/v1alpha1
kind: Component
metadata: {name: a, namespace: b}
spec:
  clusters: [edge]
  clusterSelector: {matchLabels: {a: b}}
  appliance: true
  source: {inline: x, folder: f, bundle: {name: w, version: "1", owner: o}}
  targetNamespace: ns
  dependsOn: [{name: o, orSkipped: true}]
  requires: {nodeLabels: {a: b}, onMissing: Wait}
  healthExpr: [{apiVersion: v1, kind: Node, namespace: ns, name: m, expr: "true", message: t}]
  selfTest: {job: {backoffLimit: 0}}
  prune: false
  suspend: true
  force: true
  interval: 1m0s
  retryInterval: 1m0s
  timeout: 1m0s
  retries: 3
status:
  observedGeneration: 1
  phase: Ready
  message: m
  ready: 1/1
  revision: r
  conditions: [{type: Ready, status: "True", reason: r, message: m, lastTransitionTime: "2026-11-20T12:00:00Z", observedGeneration: 1}]
  clusters:
  - {name: c, phase: p, reason: r, message: m, revision: v, applied: a, tested: t, objects: 1/1, attempts: 1,
     since: "2026-11-20T12:00:00Z", next: "2026-11-20T12:00:00Z", checked: "2026-11-20T12:00:00Z"}
`

// Every field survives reading, copying and writing, and a copy shares nothing with its original.
func TestEveryFieldIsReadAndCopied(t *testing.T) {
	var c v1alpha1.Component
	require.NoError(t, yaml.UnmarshalStrict([]byte(whole), &c))
	want, err := yaml.YAMLToJSON([]byte(whole))
	require.NoError(t, err)
	text, err := json.Marshal(c.DeepCopy())
	require.NoError(t, err)
	assert.JSONEq(t, string(want), string(text))

	list := (&v1alpha1.ComponentList{Items: []v1alpha1.Component{c}}).DeepCopyObject().(*v1alpha1.ComponentList)
	o := &list.Items[0]
	o.Spec.Clusters[0], o.Spec.ClusterSelector.MatchLabels["a"] = "changed", "changed"
	o.Spec.DependsOn[0].Name, o.Spec.Source.Bundle.Name = "changed", "changed"
	o.Spec.Requires.NodeLabels["a"], o.Spec.HealthExpr[0].Expr, o.Spec.SelfTest.Job.Raw[0] = "changed", "changed", 'X'
	*o.Spec.Prune, *o.Spec.Retries, o.Spec.Interval.Duration, o.Spec.Timeout.Duration = true, 9, 0, 0
	o.Status.Conditions[0].Reason, o.Status.Clusters[0].Phase = "changed", "changed"
	o.Status.Clusters[0].Since.Time = o.Status.Clusters[0].Since.AddDate(1, 0, 0)
	text, err = json.Marshal(c)
	require.NoError(t, err)
	assert.JSONEq(t, string(want), string(text))
}

// The API server keeps every field that Go writes.
func TestSchemaHasEveryField(t *testing.T) {
	crdtest.Parse(t, crd.KPA).CheckFields(t, whole)
}
