package v1alpha1_test

import (
	"testing"

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

func TestEveryFieldIsReadAndWritten(t *testing.T) {
	crdtest.CheckReading(t, whole, &v1alpha1.Component{})
}

func TestCopiesShareNothing(t *testing.T) {
	crdtest.CheckCopies(t, v1alpha1.GroupVersion, v1alpha1.AddToScheme)
}

// The API server keeps every field that Go writes.
func TestSchemaHasEveryField(t *testing.T) {
	crdtest.Parse(t, crd.KPA).CheckFields(t, whole)
}
