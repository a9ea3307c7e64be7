package clusterapi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// standIn are the kinds of an infrastructure provider that does nothing: the test says what it found.
func standIn() string {
	var all []string
	for _, kind := range []string{"TestCluster", "TestMachine", "TestMachineTemplate"} {
		name := strings.ToLower(kind)
		all = append(all, fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[2]ss.infrastructure.cluster.x-k8s.io
  labels: {cluster.x-k8s.io/v1beta2: v1beta2}
spec:
  group: infrastructure.cluster.x-k8s.io
  scope: Namespaced
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]ss, singular: %[2]s}
  versions:
    - name: v1beta2
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`, kind, name))
	}
	return strings.Join(all, "---\n")
}

// template is a cluster of one control plane node, in the form of `clusterctl generate cluster`.
const template = `apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {name: "${CLUSTER_NAME}", namespace: default}
spec:
  clusterNetwork: {pods: {cidrBlocks: [10.245.0.0/16]}}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: TestCluster, name: "${CLUSTER_NAME}"}
  controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io, kind: KubeadmControlPlane, name: "${CLUSTER_NAME}"}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: TestCluster
metadata: {name: "${CLUSTER_NAME}", namespace: default}
spec: {controlPlaneEndpoint: {host: 127.0.0.1, port: 9}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: TestMachineTemplate
metadata: {name: "${CLUSTER_NAME}", namespace: default}
spec: {template: {spec: {size: small}}}
---
apiVersion: controlplane.cluster.x-k8s.io/v1beta2
kind: KubeadmControlPlane
metadata: {name: "${CLUSTER_NAME}", namespace: default}
spec:
  replicas: ${CONTROL_PLANE_MACHINE_COUNT}
  version: "${KUBERNETES_VERSION}"
  machineTemplate:
    spec:
      infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: TestMachineTemplate, name: "${CLUSTER_NAME}"}
  kubeadmConfigSpec: {format: cloud-config}
`

// provisioned is what an infrastructure provider says when a cluster's part is done.
const provisioned = `--patch={"status":{"initialization":{"provisioned":true}}}`

// The managers as the appliance runs them, on a real API server: what their webhooks take and refuse, the order of
// events up to the data that a machine boots with, and clusterctl without a network. All managers are killed after each
// step and started again; nothing is lost, and nothing is there twice.
func TestManagersMakeACluster(t *testing.T) {
	m := newManagement(t)
	m.measure("idle")
	m.apply(standIn())
	t.Run("webhooks", m.testWebhooks)
	t.Run("conversion", m.testConversion)
	t.Run("cluster", m.testCluster)
	m.measure("with a cluster")
	t.Run("deletion", m.testDeletion)
}

// measure says what the managers have of memory; all of them together stay below what an appliance has for them.
func (m *management) measure(when string) {
	time.Sleep(5 * time.Second) // what the start left is collected
	all := 0
	for _, p := range Providers() {
		anonymous, pss := m.memory(p.Name)
		m.t.Logf("%s, %s: %d MiB, of which %d MiB its own", when, p.Name, pss>>10, anonymous>>10)
		all += pss
	}
	m.t.Logf("%s, all managers: %d MiB", when, all>>10)
	assert.Less(m.t, all>>10, 250)
}

func (m *management) testWebhooks(t *testing.T) {
	out, err := m.kubectl(`{apiVersion: cluster.x-k8s.io/v1beta2, kind: Cluster, metadata: {name: bad, namespace: default},
spec: {clusterNetwork: {pods: {cidrBlocks: [not-a-network]}}, controlPlaneRef: {apiGroup: controlplane.cluster.x-k8s.io,
kind: KubeadmControlPlane, name: bad}}}`, "apply", "-f", "-")
	require.Error(t, err)
	assert.Contains(t, out, "invalid CIDR address")
	assert.Contains(t, out, "not-a-network")

	out, err = m.kubectl(`{apiVersion: controlplane.cluster.x-k8s.io/v1beta2, kind: KubeadmControlPlane,
metadata: {name: even, namespace: default}, spec: {replicas: 2, version: v1.36.3, machineTemplate: {spec: {infrastructureRef:
{apiGroup: infrastructure.cluster.x-k8s.io, kind: TestMachineTemplate, name: even}}}, kubeadmConfigSpec: {format: cloud-config}}}`, "apply", "-f", "-")
	require.Error(t, err)
	assert.Contains(t, out, "cannot be an even number")
}

// A KubeadmConfig of the older version has arguments as a map; it is kept as the list of the newer one.
func (m *management) testConversion(t *testing.T) {
	m.apply(`{apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfig, metadata: {name: old, namespace: default},
spec: {joinConfiguration: {nodeRegistration: {kubeletExtraArgs: {node-labels: "metal3.io/uuid={{ ds.meta_data.uuid }}"}}}}}`)
	assert.JSONEq(t, `[{"name":"node-labels","value":"metal3.io/uuid={{ ds.meta_data.uuid }}"}]`,
		m.get("kubeadmconfigs.v1beta2.bootstrap.cluster.x-k8s.io", "old",
			".spec.joinConfiguration.nodeRegistration.kubeletExtraArgs"))
	assert.JSONEq(t, `{"node-labels":"metal3.io/uuid={{ ds.meta_data.uuid }}"}`,
		m.get("kubeadmconfigs.v1beta1.bootstrap.cluster.x-k8s.io", "old",
			".spec.joinConfiguration.nodeRegistration.kubeletExtraArgs"))
	out, err := m.kubectl("", "delete", "kubeadmconfig", "old")
	require.NoError(t, err, out)
}

func (m *management) testCluster(t *testing.T) {
	file := filepath.Join(m.dir, "template.yaml")
	require.NoError(t, os.WriteFile(file, []byte(template), 0o600))
	m.apply(m.clusterctl("generate", "cluster", "edge", "--from", file,
		"--kubernetes-version", "v1.36.3", "--control-plane-machine-count", "1"))
	assert.ElementsMatch(t, []string{
		"firstlight.internal/cluster-api-controller:v1.14.2",
		"firstlight.internal/kubeadm-bootstrap-controller:v1.14.2",
		"firstlight.internal/kubeadm-control-plane-controller:v1.14.2",
	}, strings.Fields(m.clusterctl(
		"init", "list-images", "--core", "cluster-api", "--bootstrap", "kubeadm", "--control-plane", "kubeadm",
	)))

	m.becomes("testcluster", "edge", ".metadata.ownerReferences[0].kind", "Cluster")
	m.restart()
	out, err := m.kubectl("", "patch", "testcluster", "edge", "--subresource=status", "--type=merge", provisioned)
	require.NoError(t, err, out)
	m.becomes("cluster", "edge", ".status.initialization.infrastructureProvisioned", "true")
	m.becomes("cluster", "edge", ".spec.controlPlaneEndpoint.host", "127.0.0.1")
	m.restart()

	machine := ""
	m.until("a machine has what it boots with", func() error {
		names := strings.Fields(m.get("machines", "-lcluster.x-k8s.io/cluster-name=edge", ".items[*].metadata.name"))
		if len(names) != 1 {
			return fmt.Errorf("there are %d machines", len(names))
		}
		if machine = names[0]; m.get("machine", machine, ".spec.bootstrap.dataSecretName") != machine {
			return errors.New("its data is not there")
		}
		return nil
	})
	m.restart()
	assert.True(t, strings.HasPrefix(m.get("secret", machine, ".data.value"), "IyMgdGVtcGxhdGU6IGppbmphC"),
		"cloud-init's data begins with ## template: jinja")
	m.becomes("testmachine", machine, ".metadata.ownerReferences[0].kind", "Machine")
	assert.Equal(t, machine, m.get("machines", "-lcluster.x-k8s.io/cluster-name=edge", ".items[*].metadata.name"))

	assert.Contains(t, m.clusterctl("describe", "cluster", "edge"), "Cluster default/edge")
	assert.Contains(t, m.clusterctl("get", "kubeconfig", "edge"), "https://127.0.0.1:9")
}

// What a cluster consists of goes with it, also when the managers are killed while it does.
func (m *management) testDeletion(t *testing.T) {
	out, err := m.kubectl("", "delete", "cluster", "edge", "--wait=false")
	require.NoError(t, err, out)
	m.restart()
	left := map[string][]string{
		"secrets": {"-l", "cluster.x-k8s.io/cluster-name=edge"},
		"cluster": nil, "kubeadmcontrolplane": nil, "machine": nil, "kubeadmconfig": nil, "testmachine": nil, "testcluster": nil,
	}
	for kind, selector := range left {
		m.until("no "+kind+" is left", func() error {
			out, err := m.kubectl("", append([]string{"get", kind, "-o", "name"}, selector...)...)
			if err == nil && out != "" {
				err = errors.New("there is " + out)
			}
			return err
		})
	}
}
