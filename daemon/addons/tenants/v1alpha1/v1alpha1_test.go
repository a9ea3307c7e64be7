package v1alpha1_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/crd/crdtest"
	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
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

func TestEveryFieldIsReadAndWritten(t *testing.T) { crdtest.CheckReading(t, whole, &v1alpha1.Tenant{}) }

func TestCopiesShareNothing(t *testing.T) {
	crdtest.CheckCopies(t, v1alpha1.GroupVersion, v1alpha1.AddToScheme)
}

// The API server keeps every field that Go writes.
func TestSchemaHasEveryField(t *testing.T) {
	file, err := os.ReadFile("../../../clusters/kpa/builtin/tenants/definition.yaml")
	require.NoError(t, err)
	definition := crdtest.Parse(t, file)
	assert.Equal(t, v1alpha1.GroupVersion.Group, definition.Spec.Group)
	assert.Equal(t, v1alpha1.GroupVersion.Version, definition.Spec.Versions[0].Name)
	definition.CheckFields(t, whole)
}
