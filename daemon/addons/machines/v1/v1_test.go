package v1_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/crd/crdtest"
	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
	"firstlight.dev/firstlight/daemon/clusters/kpa/builtin"
)

// instanceSpec has every field of an instance.
const instanceSpec = `
  domain:
    cpu: {cores: 2}
    memory: {guest: 512Mi}
    resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: "1", memory: 2Gi}}
    firmware: {bootloader: {bios: {}, efi: {secureBoot: false}}}
    devices:
      disks:
      - {name: system, disk: {bus: virtio, readonly: true}, bootOrder: 1, serial: s}
      - {name: seed, cdrom: {bus: sata}}
      interfaces:
      - {name: default, masquerade: {}, model: virtio, macAddress: "02:00:00:00:00:01", ports: [{name: ssh, port: 22, protocol: TCP}]}
      rng: {}
  networks: [{name: default, pod: {}}]
  volumes:
  - {name: system, persistentVolumeClaim: {claimName: c, readOnly: true}}
  - name: seed
    cloudInitNoCloud: {userData: u, userDataBase64: dQ==, secretRef: {name: s}, networkData: net, networkDataBase64: bg==, networkDataSecretRef: {name: net}}
  - {name: empty, emptyDisk: {capacity: 1Gi}}
  - {name: image, firstlightImage: {url: "http://x/y", checksum: "sha256:00", capacity: 1Gi, claimName: d}}
  hostname: h
  nodeSelector: {a: b}
  tolerations: [{key: k, operator: Equal, value: v, effect: NoExecute, tolerationSeconds: 5}]
  priorityClassName: p
  terminationGracePeriodSeconds: 5
`

const conditions = `[{type: Ready, status: "True", reason: r, message: m, observedGeneration: 1, lastTransitionTime: "2026-11-20T12:00:00Z"}]`

const instance = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: web, namespace: default}
spec:` + instanceSpec + `
status:
  phase: Running
  reason: r
  nodeName: n1
  activePods: {uid: n1}
  interfaces: [{name: default, ipAddress: 10.0.0.1, ipAddresses: [10.0.0.1], mac: "02:00:00:00:00:01"}]
  conditions: ` + conditions

const machine = `
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web, namespace: default}
spec:
  running: true
  runStrategy: Always
  template:
    metadata: {labels: {a: b}, annotations: {c: d}}
    spec: {domain: {memory: {guest: 1Gi}, resources: {}, devices: {}}}
status:
  created: true
  ready: true
  printableStatus: Running
  observedGeneration: 3
  startFailure: {consecutiveFailCount: 2, lastFailedVMIUID: u, retryAfterTimestamp: "2026-11-20T12:00:00Z"}
  conditions: ` + conditions

func TestEveryFieldIsReadAndWritten(t *testing.T) {
	var i v1.VirtualMachineInstance
	crdtest.CheckReading(t, instance, &i)
	assert.Empty(t, i.Spec.Unknown)

	var m v1.VirtualMachine
	crdtest.CheckReading(t, machine, &m)
	assert.Empty(t, m.Spec.Unknown)
}

func TestCopiesShareNothing(t *testing.T) { crdtest.CheckCopies(t, v1.GroupVersion, v1.AddToScheme) }

func TestUnknownFieldsAreRecorded(t *testing.T) {
	var m v1.VirtualMachine
	require.NoError(t, yaml.Unmarshal([]byte(`
spec:
  running: true
  updateVolumesStrategy: Migration
  template:
    metadata: {creationTimestamp: null}
    spec:
      evictionStrategy: LiveMigrate
      domain:
        cpu: {cores: 1, sockets: 2}
        devices: {disks: [{name: a, disk: {}, cache: none}]}
`), &m))
	assert.Equal(t, []string{`unknown field "updateVolumesStrategy"`}, m.Spec.Unknown)
	assert.ElementsMatch(t, []string{
		`unknown field "evictionStrategy"`, `unknown field "domain.cpu.sockets"`, `unknown field "domain.devices.disks[0].cache"`,
	}, m.Spec.Template.Spec.Unknown)
	assert.Equal(t, m.Spec.Unknown, m.DeepCopy().Spec.Unknown)
	assert.EqualValues(t, 1, m.Spec.Template.Spec.Domain.CPU.Cores)
}

func TestStrategies(t *testing.T) {
	for text, want := range map[string]v1.RunStrategy{
		"{}": v1.Halted, "{running: false}": v1.Halted, "{running: true}": v1.Always, "{runStrategy: Manual}": v1.Manual,
	} {
		var s v1.MachineSpec
		require.NoError(t, yaml.Unmarshal([]byte(text), &s))
		assert.Equal(t, want, s.Strategy(), text)
	}
}

// The API server has a place for every field that Go reads, and keeps those of a spec that it has none for.
func TestSchemaHasEveryField(t *testing.T) {
	text, _, err := builtin.Read("virtual-machines")
	require.NoError(t, err)
	var definitions []crdtest.Definition
	for _, one := range strings.Split(string(text), "\n---\n") {
		d := crdtest.Parse(t, []byte(one))
		if d.Spec.Group == v1.GroupVersion.Group {
			definitions = append(definitions, d)
		}
	}
	require.Len(t, definitions, 2)

	for n, object := range []string{instance, machine} {
		d := definitions[n]
		assert.Equal(t, "keep", d.Metadata.Annotations["helm.sh/resource-policy"], "objects would go with the add-on")
		assert.Equal(t, v1.GroupVersion.Version, d.Spec.Versions[0].Name)
		d.CheckFields(t, object)
	}

	spec := definitions[0].Schema()["properties"].(map[string]any)["spec"].(map[string]any)
	checkOpen(t, "spec", spec)
}

// checkOpen holds that unknown fields reach the controller, which refuses them. Tolerations are Kubernetes' own.
func checkOpen(t *testing.T, path string, schema map[string]any) {
	if path == "spec.tolerations[]" {
		return
	}
	properties, _ := schema["properties"].(map[string]any)
	if schema["type"] == "object" && schema["additionalProperties"] == nil {
		assert.Equal(t, true, schema["x-kubernetes-preserve-unknown-fields"], path)
	}
	for name, of := range properties {
		checkOpen(t, path+"."+name, of.(map[string]any))
	}
	if items, ok := schema["items"].(map[string]any); ok {
		checkOpen(t, path+"[]", items)
	}
}
