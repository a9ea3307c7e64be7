package v1alpha1_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/crd/crdtest"
	"firstlight.dev/firstlight/daemon/clusters/addons/tenants/v1alpha1"
)

const whole = `
apiVersion: tenant.akraino.org/v1alpha1
kind: Tenant
metadata: {name: alpha}
spec:
  namespaces: [alpha-dev, alpha-prod]
  owners: [{kind: User, name: ann}, {kind: ServiceAccount, name: ci, namespace: alpha-dev}]
  viewers: [{kind: Group, name: auditors}]
  quota: {hard: {pods: "10", requests.cpu: "4"}}
  limits:
  - type: Container
    max: {cpu: "2"}
    min: {cpu: 10m}
    default: {cpu: "1"}
    defaultRequest: {cpu: 100m}
    maxLimitRequestRatio: {cpu: "10"}
  isolation: true
  ingress: {namespaces: [ingress], cidrs: [192.0.2.0/24]}
  egress: {internet: true, cidrs: [198.51.100.0/24]}
  podSecurity: restricted
  reclaim: Delete
status:
  observedGeneration: 1
  namespaces: [alpha-dev]
  message: m
  conditions: [{type: Ready, status: "True", reason: r, message: m, lastTransitionTime: "2026-11-20T12:00:00Z", observedGeneration: 1}]
`

// Every field survives reading, copying and writing, and a copy shares nothing with its original.
func TestEveryFieldIsReadAndCopied(t *testing.T) {
	var tenant v1alpha1.Tenant
	require.NoError(t, yaml.UnmarshalStrict([]byte(whole), &tenant))
	want, err := yaml.YAMLToJSON([]byte(whole))
	require.NoError(t, err)
	text, err := json.Marshal(tenant.DeepCopy())
	require.NoError(t, err)
	assert.JSONEq(t, string(want), string(text))

	list := (&v1alpha1.TenantList{Items: []v1alpha1.Tenant{tenant}}).DeepCopyObject().(*v1alpha1.TenantList)
	o := &list.Items[0]
	o.Spec.Namespaces[0], o.Spec.Owners[0].Name, o.Spec.Viewers[0].Name = "changed", "changed", "changed"
	delete(o.Spec.Quota.Hard, "pods")
	delete(o.Spec.Limits[0].Max, "cpu")
	*o.Spec.Isolation, o.Spec.Ingress.Namespaces[0], o.Spec.Ingress.CIDRs[0] = false, "changed", "changed"
	o.Spec.Egress.Internet, o.Spec.Egress.CIDRs[0] = false, "changed"
	o.Status.Namespaces[0], o.Status.Conditions[0].Reason = "changed", "changed"
	text, err = json.Marshal(tenant)
	require.NoError(t, err)
	assert.JSONEq(t, string(want), string(text))
}

// The API server keeps every field that Go writes.
func TestSchemaHasEveryField(t *testing.T) {
	file, err := os.ReadFile("../../../kpa/builtin/tenants/definition.yaml")
	require.NoError(t, err)
	definition := crdtest.Parse(t, file)
	assert.Equal(t, v1alpha1.GroupVersion.Group, definition.Spec.Group)
	assert.Equal(t, v1alpha1.GroupVersion.Version, definition.Spec.Versions[0].Name)
	definition.CheckFields(t, whole)
}
