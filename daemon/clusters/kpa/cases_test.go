package kpa

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

func testImmutable(t *testing.T, b *fixture) {
	b.t = t
	b.apply("fixed", inline(deployment1("fixed", "old")))
	b.until("fixed", v1alpha1.PhaseHealth, plan.ReasonNotHealthy)
	b.run("fixed")
	b.until("fixed", v1alpha1.PhaseReady, plan.ReasonReady)
	b.apply("fixed", "retries: 0\n"+inline(deployment1("fixed", "new")))
	c := b.until("fixed", v1alpha1.PhaseFailed, plan.ReasonImmutable)
	assert.Contains(t, c.Status.Message, "Deployment default/fixed")
	assert.Contains(t, c.Status.Message, "force: true")
	b.apply("fixed", "retries: 0\nforce: true\n"+inline(deployment1("fixed", "new")))
	b.until("fixed", v1alpha1.PhaseHealth, plan.ReasonNotHealthy)
	b.run("fixed")
	b.until("fixed", v1alpha1.PhaseReady, plan.ReasonReady)

	// A value that the API never takes is no field that it keeps, and what stands beside it is not written either.
	wrong := strings.Replace(deployment1("fixed", "new"), "selector:", "replicas: -1\n  selector:", 1)
	b.apply("fixed", "retries: 0\nforce: true\n"+inline(configMap("beside", "1"), wrong))
	c = b.until("fixed", v1alpha1.PhaseFailed, plan.ReasonApplyFailed)
	assert.Contains(t, c.Status.Message, "spec.replicas")
	assert.Empty(t, b.data("beside"))
	b.remove("fixed")
}

const kind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Lamp, listKind: LampList, plural: lamps, singular: lamp}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
`

func testKindAndResource(t *testing.T, b *fixture) {
	b.t = t
	lamp := "apiVersion: example.org/v1\nkind: Lamp\nmetadata: {name: red}\nspec: {lit: %s}\n---\n"
	b.apply("early", "retries: 0\n"+inline(fmt.Sprintf(lamp, "true")))
	c := b.until("early", v1alpha1.PhaseFailed, plan.ReasonApplyFailed)
	assert.Contains(t, c.Status.Message, "the cluster has no kind Lamp")
	b.remove("early")

	expr := "healthExpr: [{apiVersion: example.org/v1, kind: Lamp, expr: self.spec.lit, message: the lamp is dark}]\n"
	b.apply("lamps", expr+inline(fmt.Sprintf(lamp, "false"), kind))
	c = b.until("lamps", v1alpha1.PhaseHealth, plan.ReasonExpression)
	assert.Contains(t, c.Status.Message, "the lamp is dark")
	b.apply("lamps", expr+inline(fmt.Sprintf(lamp, "true"), kind))
	b.until("lamps", v1alpha1.PhaseReady, plan.ReasonReady)
	b.remove("lamps")
}

func testRequires(t *testing.T, b *fixture) {
	b.t = t
	b.apply("sriov", "requires: {nodeLabels: {sriov: capable}}\n"+inline(configMap("sriov", "1")))
	b.apply("after", "dependsOn: [{name: sriov}]\n"+inline(configMap("after", "1")))
	b.until("sriov", v1alpha1.PhaseSkipped, plan.ReasonRequirements)
	b.until("after", v1alpha1.PhaseSkipped, plan.ReasonDependencySkipped)
	assert.Empty(t, b.data("sriov")+b.data("after"))
	require.NoError(t, b.edge.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"sriov": "capable"}}}))
	b.until("sriov", v1alpha1.PhaseReady, plan.ReasonReady)
	b.until("after", v1alpha1.PhaseReady, plan.ReasonReady)
	b.remove("after", "sriov")
}

func testBrokenCluster(t *testing.T, b *fixture) {
	b.t = t
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: u, user: {%s}}]}`
	b.secret("dead", fmt.Appendf(nil, text, ""))
	b.secret("hostile", fmt.Appendf(nil, text, "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}"))
	b.apply("both", "clusters: [edge, dead, hostile, absent]\n"+inline(configMap("both", "1")))
	c := b.until("both", v1alpha1.PhaseWaiting, plan.ReasonNoKubeconfig)
	reasons := map[string]string{}
	for _, s := range c.Status.Clusters {
		reasons[s.Name] = s.Reason
	}
	assert.Equal(t, map[string]string{
		"edge":    plan.ReasonReady,
		"dead":    plan.ReasonClusterSilent,
		"hostile": plan.ReasonKubeconfigRefused,
		"absent":  plan.ReasonNoKubeconfig,
	}, reasons)
	assert.Equal(t, "1", b.data("both"))
	assert.Equal(t, "1/4", c.Status.Ready)

	b.kubectl("delete", "kc", "both", "--wait=false")
	require.Eventually(t, func() bool { return b.data("both") == "" }, time.Minute, 200*time.Millisecond)
	c = b.until("both", v1alpha1.PhaseDeleting, plan.ReasonClusterSilent)
	assert.Contains(t, c.Status.Message, v1alpha1.AnnotationAbandon)
	b.kubectl("annotate", "kc", "both", v1alpha1.AnnotationAbandon+"=true")
	b.remove("both")
}

func testSelfTest(t *testing.T, b *fixture) {
	b.t = t
	spec := "retryInterval: 1s\nselfTest: {job: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: t, image: example.org/t:1}]}}}}\n"
	b.apply("tested", spec+inline(configMap("tested", "1")))
	end := func(kinds ...batchv1.JobConditionType) {
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			var all batchv1.JobList
			require.NoError(t, b.edge.List(context.Background(), &all))
			require.Len(t, all.Items, 1)
			j := &all.Items[0]
			now := metav1.Now()
			j.Status.StartTime = &now
			for _, kind := range kinds {
				j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{
					Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, Message: "no route", Reason: "BackoffLimitExceeded",
				})
			}
			if kinds[len(kinds)-1] == batchv1.JobComplete {
				j.Status.CompletionTime = &now
			}
			require.NoError(t, b.edge.Status().Update(context.Background(), j))
		}, time.Minute, 200*time.Millisecond)
	}
	b.until("tested", v1alpha1.PhaseTesting, plan.ReasonTestRuns)
	end(batchv1.JobFailureTarget, batchv1.JobFailed)
	require.Eventually(t, func() bool {
		var c v1alpha1.Component
		return b.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "tested"}, &c) == nil && c.Status.Clusters[0].Attempts > 0
	}, time.Minute, 100*time.Millisecond, "a test that fails is a failed attempt")
	b.until("tested", v1alpha1.PhaseTesting, plan.ReasonTestRuns)
	end(batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)
	c := b.until("tested", v1alpha1.PhaseReady, plan.ReasonReady)
	assert.Equal(t, c.Status.Revision, c.Status.Clusters[0].Tested)
	b.remove("tested")
}

func testAppliance(t *testing.T, b *fixture) {
	b.t = t
	b.apply("here", "appliance: true\n"+inline(configMap("here", "1")))
	b.until("here", v1alpha1.PhaseWaiting, plan.ReasonNoRights)
	b.kubectl("create", "clusterrolebinding", "kpa-default", "--clusterrole=cluster-admin", "--serviceaccount=default:kpa")
	b.until("here", v1alpha1.PhaseReady, plan.ReasonReady)
	var m corev1.ConfigMap
	require.NoError(t, b.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "here"}, &m))
	b.remove("here")
}

func testSelector(t *testing.T, b *fixture) {
	b.t = t
	require.NoError(t, os.MkdirAll(filepath.Join(b.folder, "brought"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(b.folder, "brought", "a.yaml"), []byte(configMap("brought", "1")), 0o644))
	b.apply("brought", "clusterSelector: {matchLabels: {site: north}}\nsource: {folder: brought}")
	b.until("brought", v1alpha1.PhaseWaiting, plan.ReasonNoCluster)
	require.NoError(t, b.try(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {namespace: default, name: p1,
labels: {cluster: edge, site: north}}, spec: {masters: [{m: {mac-address: "52:54:00:00:00:01"}}]}}`))
	b.until("brought", v1alpha1.PhaseReady, plan.ReasonReady)
	b.kubectl("label", "bpa", "p1", "site=south", "--overwrite")
	require.Eventually(t, func() bool { return b.data("brought") == "" }, time.Minute, 200*time.Millisecond, "a cluster that is no longer meant")
	b.kubectl("delete", "bpa", "p1")
	b.remove("brought")
}

func testAddOns(t *testing.T, b *fixture) {
	b.t = t
	for _, name := range []string{"nfd", "qat"} {
		require.NoError(t, os.MkdirAll(filepath.Join(b.folder, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(b.folder, name, "a.yaml"), []byte(configMap(name, "1")), 0o644))
	}
	require.NoError(t, b.try(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {namespace: default, name: p2},
spec: {masters: [{m: {mac-address: "52:54:00:00:00:02"}}]}}`))
	p := &unstructured.Unstructured{}
	p.SetAPIVersion("bpa.akraino.org/v1alpha1")
	p.SetKind("Provisioning")
	require.NoError(t, b.api.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "p2"}, p))
	a := AddOns{
		Namespace: "default",
		Owner: metav1.OwnerReference{
			APIVersion: p.GetAPIVersion(),
			Kind:       p.GetKind(),
			Name:       p.GetName(),
			UID:        p.GetUID(),
		},
		Cluster: "edge",
		Names:   []string{"qat", "nfd", "emco"},
	}
	require.NoError(t, b.components().RequestAddOns(t.Context(), b.api, []AddOns{a}))
	require.NoError(t, b.components().GrantNamespaces(t.Context(), b.api))
	b.until("edge-nfd", v1alpha1.PhaseReady, plan.ReasonReady)
	b.until("edge-qat", v1alpha1.PhaseSkipped, plan.ReasonRequirements)
	assert.Empty(t, b.data("qat"))
	c := b.until("edge-emco", v1alpha1.PhaseWaiting, plan.ReasonSourceMissing)
	assert.Contains(t, c.Status.Message, "folder emco")

	b.kubectl("patch", "kc", "edge-emco", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
	require.NoError(t, b.components().RequestAddOns(t.Context(), b.api, []AddOns{a}))
	b.until("edge-emco", v1alpha1.PhaseSuspended, plan.ReasonSuspended)
	var states []string
	for _, s := range b.components().Status() {
		states = append(states, s.Name+" "+s.State)
	}
	assert.Equal(t, []string{"default/edge-emco suspended", "default/edge-nfd ready", "default/edge-qat skipped"}, states)

	a.Names = []string{"nfd"}
	require.NoError(t, b.components().RequestAddOns(t.Context(), b.api, []AddOns{a}))
	b.remove("edge-emco", "edge-qat")
	assert.Equal(t, "1", b.data("nfd"))
	require.NoError(t, b.components().RequestAddOns(t.Context(), b.api, nil))
	require.Eventually(t, func() bool { return b.data("nfd") == "" }, time.Minute, 200*time.Millisecond)
	b.remove("edge-nfd")
	b.kubectl("delete", "bpa", "p2")
}

func testOwners(t *testing.T, b *fixture) {
	b.t = t
	b.apply("first", inline(configMap("shared", "1")))
	b.until("first", v1alpha1.PhaseReady, plan.ReasonReady)
	b.apply("second", inline(configMap("shared", "2")))
	c := b.until("second", v1alpha1.PhaseRefused, plan.ReasonConflict)
	assert.Contains(t, c.Status.Message, "belongs to Component default/first")
	assert.Equal(t, "1", b.data("shared"))
	b.remove("second")
	assert.Equal(t, "1", b.data("shared"), "another's stays")
	b.remove("first")
}
