package nodes_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// networkWithDevices is a network of virtual functions, and a pod that asks for it without requesting one.
const networkWithDevices = `
apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetwork
metadata: {name: fast, namespace: sriov-network-operator}
spec: {resourceName: nic, networkNamespace: default, vlan: 7, ipam: '{"type": "host-local", "subnet": "192.0.2.0/24"}'}
---
apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetworkNodePolicy
metadata: {name: nic, namespace: sriov-network-operator}
spec: {nicSelector: {vendor: "8086"}, numVfs: 4, resourceName: nic}
---
apiVersion: sriovnetwork.openshift.io/v1
kind: SriovNetworkNodePolicy
metadata: {name: wrong, namespace: sriov-network-operator}
spec: {nicSelector: {}, numVfs: 4, resourceName: nic}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: sriovdp-config, namespace: kube-system}
data:
  config.json: '{"resourceList": [{"resourceName": "ice", "selectors": {"ddpProfiles": ["gtp"]}}, {"resourceName": "nic"}]}'
`

// TestDevicesOfMachinesWithoutAny: on machines without virtual functions sriov and qat are skipped if nfd is asked for, and
// do no harm if it is not. What does not need hardware is tried on real nodes: the kubelet's sockets, states, definitions,
// sentences about what cannot be, rights, and removal. Virtual functions themselves need a machine that has some.
func TestDevicesOfMachinesWithoutAny(t *testing.T) {
	long(t)
	b := newWhole(t, "devices", 2)
	for i, s := range b.Servers {
		b.host(i+1, s)
	}
	if strings.TrimSpace(b.on(b.Servers[0], "cat /sys/bus/pci/devices/*/sriov_totalvfs 2>/dev/null | grep -v '^0$' | wc -l")) != "0" {
		t.Skip("this machine has devices with virtual functions")
	}
	provision := func(plugins string) {
		b.apply(`{apiVersion: bpa.akraino.org/v1alpha1, kind: Provisioning, metadata: {name: edge, namespace: default, labels: {cluster: edge, owner: alpha}},
spec: {masters: [{master-1: {mac-address: '52:54:00:00:00:01'}}], workers: [{worker-2: {mac-address: '52:54:00:00:00:02'}}], KUDPlugins: [` + plugins + `]}}`)
		b.until("bpa", "edge")
	}
	provision("nfd, sriov, qat")
	for _, name := range []string{"sriov", "qat"} {
		b.appliance("kubectl", "wait", "kc/edge-"+name, "--for=jsonpath={.status.phase}=Skipped", "--timeout=10m")
	}
	t.Log("\n" + b.appliance("kubectl", "get", "kc", "-o", "wide"))

	provision("multus, sriov, qat")
	for _, name := range []string{"multus", "sriov", "qat"} {
		b.appliance("kubectl", "wait", "kc/edge-"+name, "--for=create", "--timeout=5m")
		b.appliance("kubectl", "wait", "kc/edge-"+name, "--for=condition=Ready", "--timeout=10m")
	}
	t.Log("\n" + b.appliance("kubectl", "get", "kc", "-o", "wide"))
	first, worker := b.Servers[0], b.Servers[1]
	const kubectl = "kubectl --kubeconfig /etc/kubernetes/admin.conf "
	for _, set := range []string{"ds/qat", "ds/sriov -c devices"} {
		b.await(first, kubectl+"-n kube-system logs "+set, "no virtual function of this node fits a resource of the configuration")
	}
	t.Log("\n" + b.on(worker, "ls -l /opt/cni/bin/sriov /var/lib/kubelet/device-plugins"))

	// Every node says what it has, and which policy cannot be.
	const state = kubectl + "-n sriov-network-operator get sriovnetworknodestates worker-2 -o jsonpath={.status.syncStatus}:{.status.interfaces}"
	b.await(first, state, `^Succeeded:\[\]`)
	b.applyEdge(networkWithDevices)
	b.await(first, kubectl+"-n sriov-network-operator get sriovnetworknodestates worker-2 -o jsonpath={.status.lastSyncError}",
		"policy wrong: nicSelector selects nothing; give it vendor, deviceID, pfNames or rootDevices")
	const events = kubectl + "get events --field-selector involvedObject.name=worker-2,reason=DevicesNotOffered -o jsonpath={.items[*].message}"
	b.await(first, events, "ddpProfiles is not offered: drivers tell profiles by devlink or ethtool, which nothing here reads")
	t.Log("\n" + b.on(first, events))
	b.kubectl("-n", "sriov-network-operator", "delete", "sriovnetworknodepolicy", "wrong")
	b.await(first, state, `^Succeeded:`)
	t.Log("\n" + b.kubectl("-n", "sriov-network-operator", "get", "sriovnetworknodestates,sriovnetworknodepolicies,sriovnetworks"))

	// The network has a definition; a pod that requests no device of it is told so, by what the kubelet says of the pod.
	b.await(first, kubectl+"get net-attach-def fast -o jsonpath={.spec.config}", `"vlan":7`)
	b.applyEdge(probePod("lonely", "worker-2", "fast"))
	const warnings = kubectl + "get events --field-selector involvedObject.name=lonely,type=Warning -o jsonpath={.items[*].message}"
	b.await(first, warnings, "network default/fast: it needs a device of openshift.io/nic, and the pod has 0 of them in all; "+
		"have its containers request one")
	t.Log("\n" + b.on(first, warnings))
	b.kubectl("delete", "pod", "lonely", "--timeout=3m")
	b.kubectl("-n", "sriov-network-operator", "delete", "sriovnetwork", "fast")
	b.await(first, kubectl+"get net-attach-def -o name | wc -l", "^0\n")

	// The pod of one node writes nothing of another.
	b.kubectl("create", "clusterrole", "trial", "--verb=get", "--resource=sriovnetworknodestates.sriovnetwork.openshift.io")
	b.kubectl("create", "clusterrolebinding", "trial", "--clusterrole=trial", "--serviceaccount=kube-system:sriov")
	for node, says := range map[string]string{"worker-2": "", "master-1": "the pod of one node writes no other node's state"} {
		_, err := b.Kubectl(b.ctx, cluster, "-n", "sriov-network-operator", "--as=system:serviceaccount:kube-system:sriov",
			"--as-user-extra=authentication.kubernetes.io/node-name=worker-2", "patch", "sriovnetworknodestate", node, "--type=merge",
			"-p", `{"metadata":{"annotations":{"x.example/y":"1"}}}`)
		if says == "" {
			require.NoError(t, err)
			continue
		}
		assert.ErrorContains(t, err, says)
	}
	b.kubectl("delete", "clusterrole/trial", "clusterrolebinding/trial")

	provision("")
	for _, name := range []string{"sriov", "qat"} {
		b.appliance("kubectl", "wait", "kc/edge-"+name, "--for=delete", "--timeout=5m")
		assert.Empty(t, b.kubectl("get", "clusterrole,role,serviceaccount,daemonset,deployment,validatingadmissionpolicy", "-A", "-o", "name",
			"--ignore-not-found", "-l", "kpa.akraino.org/name=edge-"+name))
	}
	assert.Contains(t, b.kubectl("-n", "sriov-network-operator", "get", "sriovnetworknodepolicies", "-o", "name"), "nic", "policies are their owners'")
}
