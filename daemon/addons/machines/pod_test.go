package machines

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/daemon/addons/machines/launcher"
	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

func readInstance(t *testing.T, spec string) *v1.VirtualMachineInstance {
	t.Helper()
	return &v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "1111", Generation: 1, Labels: map[string]string{"app": "web"},
		},
		Spec: readSpec(t, spec),
	}
}

// Pods of the least machine and of one with everything, as objects that a reader can check.
func TestPods(t *testing.T) {
	for name, c := range map[string]struct {
		spec   string
		claims claimSizes
		with   launcher.Accelerator
	}{
		"least": {spec: "domain: {memory: {guest: 64Mi}}", with: launcher.TCG},
		"whole": {
			spec: `
domain:
  cpu: {cores: 2}
  resources: {requests: {memory: 1Gi, cpu: 500m}, limits: {cpu: "2"}}
  devices:
    disks: [{name: system, disk: {bus: virtio}}, {name: seed, cdrom: {}}, {name: kept, disk: {bus: virtio}}]
    interfaces: [{name: default, masquerade: {}, ports: [{name: ssh, port: 22}, {port: 53, protocol: UDP}]}]
networks: [{name: default, pod: {}}]
volumes:
- {name: system, persistentVolumeClaim: {claimName: c, readOnly: true}}
- {name: seed, cloudInitNoCloud: {secretRef: {name: user}, networkDataSecretRef: {name: network}}}
- {name: kept, firstlightImage: {url: "http://172.22.0.1:6180/images/debian-13.raw", claimName: d}}
nodeSelector: {disk: fast}
tolerations: [{operator: Exists}]
priorityClassName: high
terminationGracePeriodSeconds: 120
`,
			claims: claimSizes{"system": 1 << 30, "kept": 2 << 30},
			with:   launcher.KVM,
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := readInstance(t, c.spec)
			pod, err := RenderPod(i, "firstlight.internal/machines:v0", c.claims, c.with)
			require.NoError(t, err)
			have, err := yaml.Marshal(pod)
			require.NoError(t, err)
			goldentest.Check(t, "testdata/"+name+".yaml", have)

			again, err := RenderPod(i, "firstlight.internal/machines:v0", c.claims, c.with)
			require.NoError(t, err)
			assert.Equal(t, pod, again)
		})
	}
}

func TestPodNames(t *testing.T) {
	name := func(of string, uid types.UID) string {
		return PodName(&v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: of, UID: uid}})
	}
	assert.Regexp(t, `^virt-launcher-web-[0-9a-v]{5}$`, name("web", "1"))
	assert.Equal(t, name("web", "1"), name("web", "1"))
	assert.NotEqual(t, name("web", "1"), name("web", "2"), "the next instance has another pod")
	for _, of := range []string{"a", strings.Repeat("a", 253), strings.Repeat("a.", 126) + "a"} {
		assert.Empty(t, validation.IsDNS1123Subdomain(name(of, "1")), of)
	}
	for _, of := range []string{"web", strings.Repeat("a", 63), strings.Repeat("a.", 40)} {
		assert.Empty(t, validation.IsValidLabelValue(labelValue(of)), of)
	}
}

func TestObserve(t *testing.T) {
	pod := func(text string) *corev1.Pod {
		p := &corev1.Pod{}
		require.NoError(t, yaml.Unmarshal([]byte(text), p))
		return p
	}
	for _, c := range []struct {
		before v1.Phase
		pod    string // "": none
		want   observation
	}{
		{"", "", observation{v1.Pending, v1.ReasonStarting, "its pod is not there yet"}},
		{v1.Pending, "", observation{v1.Pending, v1.ReasonStarting, "its pod is not there yet"}},
		{v1.Scheduling, "", observation{v1.Failed, v1.ReasonGone, "its pod was removed by somebody"}},
		{v1.Running, "", observation{v1.Failed, v1.ReasonGone, "its pod was removed by somebody"}},
		{"", "{status: {phase: Pending}}", observation{v1.Scheduling, v1.ReasonStarting, "its pod waits for a node"}},
		{
			"", `{status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/1 nodes"}]}}`,
			observation{v1.Scheduling, v1.ReasonUnschedulable, "0/1 nodes"},
		},
		{
			"", `{spec: {nodeName: n1}, status: {phase: Pending, containerStatuses: [{state: {waiting: {reason: ErrImagePull, message: "no"}}}]}}`,
			observation{v1.Scheduled, v1.ReasonStarting, "its container waits: ErrImagePull: no"},
		},
		{
			"", `{spec: {nodeName: n1}, status: {phase: Running, containerStatuses: [{state: {running: {}}}]}}`,
			observation{v1.Scheduled, v1.ReasonStarting, "its disks are being prepared"},
		},
		{
			v1.Scheduled, `{spec: {nodeName: n1}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`,
			observation{v1.Running, v1.ReasonReady, "the machine runs"},
		},
		{
			v1.Running, `{spec: {nodeName: n1}, status: {phase: Running, conditions: [{type: Ready, status: "False"}]}}`,
			observation{v1.Running, v1.ReasonStarting, "QEMU does not answer"},
		},
		{
			v1.Running, `{metadata: {deletionTimestamp: "2026-11-20T12:00:00Z"}, spec: {nodeName: n1}, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`,
			observation{v1.Running, v1.ReasonTerminating, "the machine is being powered down"},
		},
		{v1.Running, "{status: {phase: Succeeded}}", observation{v1.Succeeded, v1.ReasonEnded, "the machine was powered down"}},
		{
			v1.Running, `{status: {phase: Failed, containerStatuses: [{state: {terminated: {reason: Error, message: "volume a: no"}}}]}}`,
			observation{v1.Failed, v1.ReasonFailed, "volume a: no"},
		},
		{
			v1.Running, `{status: {phase: Failed, containerStatuses: [{state: {terminated: {reason: OOMKilled}}}]}}`,
			observation{v1.Failed, v1.ReasonFailed, "its container ended: OOMKilled"},
		},
		{
			v1.Running, `{status: {phase: Failed, message: "the node was low on memory", containerStatuses: [{state: {terminated: {reason: Error}}}]}}`,
			observation{v1.Failed, v1.ReasonFailed, "the node was low on memory"},
		},
		{v1.Running, "{metadata: {name: p}, status: {phase: Failed}}", observation{v1.Failed, v1.ReasonFailed, "its pod failed: kubectl describe pod p"}},
	} {
		i := readInstance(t, "domain: {}")
		i.Status.Phase = c.before
		var p *corev1.Pod
		if c.pod != "" {
			p = pod(c.pod)
		}
		assert.Equal(t, c.want, Observe(i, p), "%s %s", c.before, c.pod)
	}
}

func TestDescribe(t *testing.T) {
	i := readInstance(t, good)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "p"},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status:     corev1.PodStatus{PodIP: "10.244.0.7", PodIPs: []corev1.PodIP{{IP: "10.244.0.7"}, {IP: "fd00::7"}}},
	}
	Describe(i, pod, observation{v1.Running, v1.ReasonReady, "the machine runs"})
	assert.Equal(t, v1.Running, i.Status.Phase)
	assert.Equal(t, "n", i.Status.NodeName)
	assert.Equal(t, map[types.UID]string{"p": "n"}, i.Status.ActivePods)
	assert.Equal(t, []v1.InterfaceStatus{{
		Name: "default", IPAddress: "10.244.0.7", IPAddresses: []string{"10.244.0.7", "fd00::7"}, MAC: "02:00:00:00:00:01",
	}}, i.Status.Interfaces)
	assert.Equal(t, metav1.ConditionTrue, i.Status.Conditions[0].Status)

	Describe(i, pod, observation{v1.Failed, v1.ReasonFailed, "no"})
	assert.Equal(t, "PodFailed", i.Status.Reason)
	assert.Equal(t, "n", i.Status.NodeName)
	assert.Empty(t, i.Status.Interfaces)
	assert.Empty(t, i.Status.ActivePods)
}
