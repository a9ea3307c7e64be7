package operator

import (
	"fmt"
	"strings"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/clusters/bpa/match"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// testForms applies each form that ICN's samples have, whole files as ICN's users wrote them.
func testForms(t *testing.T, r *fixture) {
	for n := 1; n <= 5; n++ {
		r.host(n)
	}
	file := func(name, labels, spec string) string {
		return "apiVersion: bpa.akraino.org/v1alpha1\nkind: Provisioning\nmetadata:\n  name: " + name + "\n  labels:\n    cluster: " + name + "\n    owner: c1\n" + labels + "spec:\n" + spec
	}
	for _, c := range []struct {
		name, text string
		want       string // label=host's number and roles, sorted by the inventory
		command    string // the end of it
	}{
		{"one master", file("f1", "", "  masters:\n    - master:\n        mac-address: 52:54:00:00:01:01\n"), "master=1mw", "--cluster f1"},
		{"2 masters and 3 workers", file("f2", "", "  masters:\n    - master-1:\n        mac-address: 52:54:00:00:01:00\n    - master-2:\n        mac-address: 52:54:00:00:02:00\n"+
			"  workers:\n    - worker-1:\n        mac-address: 52:54:00:00:03:00\n    - worker-2:\n        mac-address: 52:54:00:00:04:00\n    - worker-3:\n        mac-address: 52:54:00:00:05:00\n"),
			"master-1=1m master-2=2m worker-1=3w worker-2=4w worker-3=5w", "--cluster f2"},
		{"one label in both lists", file("f3", "", "  masters:\n    - master-1:\n        mac-address: 52:54:00:00:01:00\n  workers:\n    - master-1:\n        mac-address: 52:54:00:00:01:00\n    - worker-1:\n        mac-address: 52:54:00:00:02:00\n"),
			"master-1=1mw worker-1=2w", "--cluster f3"},
		{"null body", file("f4", "", "  masters:\n    - master-1:\n        mac-address: 52:54:00:00:01:00\n  workers:\n    - master-1:\n"), "master-1=1mw", "--cluster f4"},
		{"KUDPlugins", file("f5", "", "  masters:\n    - master-1:\n        mac-address: 52:54:00:00:01:00\n  KUDPlugins:\n    - nfd\n    - metrics-server\n"), "master-1=1mw", "--cluster f5"},
		{"KUDPlugins for another installer", file("f12", "", "  masters:\n    - master-1:\n        mac-address: 52:54:00:00:01:00\n  KUDPlugins:\n    - local-path-provisioner\n    - metrics-server\n  installerImage: example/kud:1\n"), "master-1=1mw", "--cluster f12 --plugins local-path-provisioner metrics-server"},
		{"PodSubnet", file("f6", "", "  masters:\n    - master-1:\n        mac-address: 52:54:00:00:01:00\n  PodSubnet: 172.21.64.0/18\n"), "master-1=1mw", "--cluster f6 --network 172.21.64.0/18"},
		{"indentation, blanks, comments", file("f7", "", "      masters:   \n      -   master-1:     # the first\n               mac-address:    52:54:00:00:01:00   \n\n   \n"), "master-1=1mw", "--cluster f7"},
		{"labels for another installer", file("f11", "", "  masters:\n    - Node_1.rack: {host: h1}\n  installerImage: example/kud:1\n"), "Node_1.rack=1mw", "--cluster f11"},
		{"resources", file("f8", "", "  masters:\n    - m: {cpu: 3, memory: 4Gi}\n  workers:\n    - w: {cpu: 1}\n"), "m=4m w=1w", "--cluster f8"},
		{"MAC and resources", file("f9", "", "  masters:\n    - m: {mac-address: '52:54:00:00:04:01', cpu: 3, memory: 4Gi}\n"), "m=4mw", "--cluster f9"},
		{"no label cluster: the name of the resource", strings.Replace(file("f10", "", "  masters:\n    - m: {host: h2}\n"), "    cluster: f10\n", "", 1), "m=2mw", "--cluster f10"},
	} {
		name := fmt.Sprintf("f%s", strings.TrimPrefix(strings.Fields(strings.SplitAfter(c.command, "--cluster ")[1])[0], "f"))
		r.apply(c.text)
		p := r.settle(name)
		require.Equal(t, v1alpha1.PhaseInstalling, p.Status.Phase, "%s: %s", c.name, p.Status.Message)
		var got []string
		for _, m := range r.run(name).Members {
			roles := ""
			for _, role := range m.Roles() {
				roles += role[:1]
			}
			got = append(got, fmt.Sprintf("%s=%s%s", m.Label, strings.TrimPrefix(m.Host, "metal3/h"), roles))
		}
		assert.Equal(t, c.want, strings.Join(got, " "), c.name)
		if strings.HasPrefix(c.name, "2 masters") {
			assert.Equal(t, []string{"2 control planes bear the loss of 0, no more than 1 would: etcd continues with more than half; list one, three or five"}, p.Status.Warnings)
			r.said("Warning EvenControlPlanes 2 control planes bear the loss of 0")
		} else {
			assert.Empty(t, p.Status.Warnings, c.name)
		}
		args := r.job(name).Spec.Template.Spec.Containers[0].Args
		assert.Equal(t, "cp -r /.ssh /root/; chmod -R 600 /root/.ssh; ./installer "+c.command, args[0], c.name)
		require.NoError(t, r.api.Delete(t.Context(), r.get(name)))
		assert.Empty(t, r.settle(name).Name, "%s is not gone", c.name)
		for n := 1; n <= 5; n++ {
			r.changeHost(n, func(b *host) { delete(b.Annotations, label.Installed) })
		}
	}
}

type refusal struct {
	name, spec string
	phase      string
	reason     string
	says       []string
	labels     string // in place of the usual one
}

// refuse checks that a Provisioning is refused: by a condition, an Event, and by nothing
// having been done.
func (r *fixture) refuse(i int, c refusal) {
	t := r.t
	name := fmt.Sprintf("r%d", i)
	text := provisioning(name, c.spec)
	if c.labels != "" {
		text = strings.Replace(text, "{cluster: "+name+"}", c.labels, 1)
	}
	r.apply(text)
	r.events = nil
	p := r.settle(name)
	is := ready(p)
	assert.Equal(t, metav1.ConditionFalse, is.Status, c.name)
	assert.Equal(t, c.reason, is.Reason, "%s: %s", c.name, is.Message)
	assert.Equal(t, c.phase, p.Status.Phase, c.name)
	assert.Equal(t, NotBegun, meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionInstalled).Reason, c.name)
	for _, s := range c.says {
		assert.Contains(t, is.Message, s, c.name)
		r.said("Warning " + c.reason)
	}
	var jobs batchv1.JobList
	require.NoError(t, r.api.List(t.Context(), &jobs))
	assert.Empty(t, jobs.Items, "%s: a Job was made", c.name)
	assert.Empty(t, r.file(name, contract.FileInventory), "%s: an inventory was written", c.name)
	var hosts metal3api.BareMetalHostList
	require.NoError(t, r.api.List(t.Context(), &hosts))
	for _, b := range hosts.Items {
		assert.NotEqual(t, ownerName("default", name), claimOf(b.Spec.ConsumerRef).Owner, "%s: a host was claimed", c.name)
	}
	require.NoError(t, r.api.Delete(t.Context(), r.get(name)))
	r.settle(name)
}

// testRefusals: what is wrong with the resource itself.
func testRefusals(t *testing.T, r *fixture) {
	r.host(1)
	r.host(2)
	for i, c := range []refusal{
		{"master without MAC", "masters:\n- m: {}", v1alpha1.PhaseRefused, match.NothingAsked, []string{"MAC address for masterNode m not provided"}, ""},
		{"worker without MAC", "masters:\n- m: {cpu: 1}\nworkers:\n- w: {}", v1alpha1.PhaseRefused, match.NothingAsked, []string{"MAC address for worker w not provided"}, ""},
		{"worker with a null body, unknown label", "masters:\n- m: {cpu: 1}\nworkers:\n- w:", v1alpha1.PhaseRefused, match.NothingAsked, []string{"MAC address for worker w not provided"}, ""},
		{"no masters", "workers:\n- w: {cpu: 1}", v1alpha1.PhaseRefused, match.NoMasters, []string{"spec.masters is empty"}, ""},
		{"placeholder MAC", "masters:\n- m: {mac-address: <pn4-IF2-mac>}", v1alpha1.PhaseRefused, match.InvalidMAC, []string{`node m: mac-address "<pn4-IF2-mac>" is not a MAC`}, ""},
		{"one label, two MACs", "masters:\n- m: {mac-address: '52:54:00:00:01:00'}\nworkers:\n- m: {mac-address: '52:54:00:00:02:00'}", v1alpha1.PhaseRefused, match.LabelTaken,
			[]string{"A node with label m already exists, modify resource and assign a different label to node with MACAddress 52:54:00:00:02:00"}, ""},
		{"one MAC, two labels", "masters:\n- m: {mac-address: '52:54:00:00:01:00'}\nworkers:\n- w: {mac-address: '52:54:00:00:01:00'}", v1alpha1.PhaseRefused, match.LabelTaken,
			[]string{"A node with label m already exists", "52:54:00:00:01:00"}, ""},
		{"one MAC, two masters", "masters:\n- m: {mac-address: '52:54:00:00:01:00'}\n- k: {mac-address: '52:54:00:00:01:00'}", v1alpha1.PhaseRefused, match.LabelTaken, []string{"A node with label m already exists"}, ""},
		{"PodSubnet with host bits", "masters:\n- m: {cpu: 1}\nPodSubnet: 10.0.0.1/8", v1alpha1.PhaseRefused, InvalidSubnet, []string{`PodSubnet "10.0.0.1/8" is not a network`}, ""},
		{"a cluster's name that no Job can have", "masters:\n- m: {cpu: 1}", v1alpha1.PhaseRefused, InvalidName, []string{`the label cluster="Edge_1" cannot name a Job`}, "{cluster: Edge_1}"},
		{"a label that the stick's installer will not take", "masters:\n- Node_1.rack: {cpu: 1}", v1alpha1.PhaseRefused, LabelRefused,
			[]string{"node Node_1.rack: the label is not a node's name; use small letters, digits and hyphens, at most 63; or name another installer: installerImage"}, ""},
		{"six masters", "masters:\n- a: {cpu: 1}\n- b: {cpu: 1}\n- c: {cpu: 1}\n- d: {cpu: 1}\n- e: {cpu: 1}\n- f: {cpu: 1}", v1alpha1.PhaseRefused, MastersRefused,
			[]string{"spec.masters: 6 control planes are too many", "name one, three or five; or name another installer"}, ""},
		{"all at once", "masters:\n- m: {mac-address: x}\n- k:\nPodSubnet: 10.0.0.1/8", v1alpha1.PhaseRefused, match.InvalidMAC, []string{"node m: mac-address", "masterNode k not provided", `PodSubnet "10.0.0.1/8" is not`}, ""},
	} {
		r.refuse(i, c)
	}
	if r.real == nil {
		return // the fake knows no schema
	}
	for _, c := range []struct{ name, spec, says string }{
		{"a label that would break the inventory", "masters:\n- \"m\\n[all]\": {cpu: 1}", "the label of a node is its host name"},
		{"memory", "masters:\n- m: {memory: lots}", "memory is not a quantity"},
		{"PodSubnet", "masters:\n- m: {cpu: 1}\nPodSubnet: 10.0.0.0/8; reboot", "this is not a network"},
		{"overlapping networks", "masters:\n- m: {cpu: 1}\nPodSubnet: 10.0.0.0/8\nServiceSubnet: 10.96.0.0/16", "PodSubnet and ServiceSubnet overlap"},
		{"a plugin of two words", "masters:\n- m: {cpu: 1}\nKUDPlugins: ['a b']", "spec.KUDPlugins[0]"},
		{"an item without a label", "masters:\n- {}", "an item names no node: kubectl apply drops a label whose body is empty"},
		{"cpu below nothing", "masters:\n- m: {cpu: -1}", "should be greater than or equal to 0"},
		{"a string for sriov", "masters:\n- m: {sriov: 'yes'}", "sriov"},
	} {
		err := r.tryApply(provisioning("s", c.spec))
		assert.ErrorContains(t, err, c.says, c.name)
	}
	kept := provisioning("kept", "masters:\n- m: {cpu: 1, unknown: 2}\nworkers:\n- m:\nkudInstallerPath: /x")
	r.apply(kept)
	p := r.get("kept")
	body, there := p.Spec.Workers[0]["m"]
	assert.True(t, there && body == nil, "a null body was pruned: %+v", p.Spec.Workers)
	assert.Equal(t, "/x", p.Spec.KUDInstallerPath)
}

// testHostRefusals: what is wrong with the hosts that are asked for.
func testHostRefusals(t *testing.T, r *fixture) {
	for n := 1; n <= 9; n++ {
		r.host(n)
	}
	r.changeHost(2, func(b *host) {
		b.Status.HardwareDetails.NIC = []metal3api.NIC{{MAC: mac(2, 0)}, {MAC: mac(2, 1), IP: "10.1.0.2"}}
	})
	r.changeHost(3, func(b *host) {
		b.Status.Provisioning.State, b.Status.ErrorMessage = metal3api.StateProvisioning, "Image provisioning failed"
	})
	r.changeHost(4, func(b *host) { b.Labels = nil })
	r.changeHost(5, func(b *host) { b.Status.HardwareDetails.NIC[1].MAC = mac(6, 1) })
	r.changeHost(8, func(b *host) { b.Status.HardwareDetails.NIC[0].IP = addr(9) })
	require.NoError(t, clusterDir(r.Dir).write("dhcpd.leases", []byte(fmt.Sprintf("lease %s {\n  binding state free;\n  hardware ethernet %s;\n}\n", addr(7), strings.ToUpper(mac(7, 0)))), 0o644))
	r.changeHost(1, func(b *host) {
		b.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Namespace: "capi", Name: "x"}
	})
	m := func(n, nic int, more ...string) string {
		return fmt.Sprintf("masters:\n- m: {mac-address: '%s'%s}", mac(n, nic), strings.Join(more, ""))
	}
	for i, c := range []refusal{
		{"MAC in no host", m(99, 0), v1alpha1.PhaseWaiting, match.HostNotFound, []string{"Host with MAC Address 52:54:00:00:63:00 not found", "node m"}, ""},
		{"a MAC is not searched as text", "masters:\n- m: {host: h1x}", v1alpha1.PhaseWaiting, match.HostNotFound, []string{"Host h1x not found: node m"}, ""},
		{"no address on that NIC", m(2, 0), v1alpha1.PhaseWaiting, "NoAddress", []string{"IP address not found for host with MAC address 52:54:00:00:02:00", "node m", "name another NIC of the host (52:54:00:00:02:01)"}, ""},
		{"worker without an address", m(6, 0) + fmt.Sprintf("\nworkers:\n- w: {mac-address: '%s'}", mac(2, 0)), v1alpha1.PhaseWaiting, "NoAddress", []string{"IP address not found for host with MAC address 52:54:00:00:02:00", "node w"}, ""},
		{"the lease is over", m(7, 0), v1alpha1.PhaseWaiting, "NoActiveLease", []string{"No active ip address lease found for MAC address 52:54:00:00:07:00", "10.0.0.7 is free"}, ""},
		{"not provisioned", m(3, 0), v1alpha1.PhaseWaiting, match.HostNotReady, []string{"node m: host metal3/h3", "is provisioning, not provisioned yet: Image provisioning failed"}, ""},
		{"not proven", m(4, 0), v1alpha1.PhaseWaiting, match.HostNotReady, []string{"metal3/h4", "is provisioned, but not proven to work yet"}, ""},
		{"two hosts with one MAC", m(6, 1), v1alpha1.PhaseRefused, match.HostAmbiguous, []string{"2 hosts have the MAC 52:54:00:00:06:01: metal3/h5, metal3/h6"}, ""},
		{"two NICs of one host", m(7, 0) + fmt.Sprintf("\nworkers:\n- w: {mac-address: '%s'}", mac(7, 1)), v1alpha1.PhaseRefused, match.HostTwice, []string{"node w: host metal3/h7", "is node m already"}, ""},
		{"somebody else's host", m(1, 0), v1alpha1.PhaseRefused, match.HostClaimed, []string{"MAC address 52:54:00:00:01:00 has already been used, check and update provisioning CR", "Metal3Machine capi/x"}, ""},
		{"too small", m(6, 0, ", cpu: 64"), v1alpha1.PhaseRefused, match.HostTooSmall, []string{"node m: host metal3/h6", "has 6 CPUs, 64 are asked for"}, ""},
		{"too small a memory", m(6, 0, ", memory: 64Gi"), v1alpha1.PhaseRefused, match.HostTooSmall, []string{"has 6 GiB of memory, 64 GiB is asked for"}, ""},
		{"no such device", m(6, 0, ", qat: true"), v1alpha1.PhaseRefused, match.HostTooSmall, []string{"has no QAT"}, ""},
		{"nothing fits", "masters:\n- m: {cpu: 64, sriov: true}", v1alpha1.PhaseRefused, match.NoHostFits, []string{"node m: no host is left with 64 CPUs, SR-IOV", "9 are too small"}, ""},
		{"one address, two hosts", m(8, 0) + fmt.Sprintf("\nworkers:\n- w: {mac-address: '%s'}", mac(9, 0)), v1alpha1.PhaseWaiting, AddressTwice, []string{"nodes m and w both have the address 10.0.0.9"}, ""},
		{"no virtual machine", m(1, 0), v1alpha1.PhaseWaiting, match.HostNotFound, []string{"IP address not found for VM with MAC address 52:54:00:00:01:00"}, "{cluster: r15, cluster-type: virtlet-vm}"},
	} {
		r.refuse(i, c)
	}
}

// testVirtlet: virtual machines are running pods of virtlet's, by the first network's MAC.
func testVirtlet(t *testing.T, r *fixture) {
	vm := func(name, mac, ip string, phase corev1.PodPhase) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: name, Annotations: map[string]string{
			annotationRuntime: runtimeVirtlet, annotationNetworks: `[{"name":"a","mac":"` + mac + `"},{"name":"b","mac":"52:54:00:00:aa:99"}]`,
		}}, Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{Name: "x", Image: "x", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		}}
		r.create(p)
		p.Status = corev1.PodStatus{Phase: phase, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}
		require.NoError(t, r.api.Status().Update(t.Context(), p))
	}
	vm("one", "52:54:00:00:AA:01", "10.9.0.1", corev1.PodRunning)
	vm("two", "52:54:00:00:aa:02", "10.9.0.2", corev1.PodRunning)
	// A virtual machine may have asked the appliance for an address as well: it is reached at its pod's.
	leases := fmt.Sprintf("lease 10.0.0.77 {\n  binding state active;\n  hardware ethernet %s;\n}\n", "52:54:00:00:aa:01") +
		fmt.Sprintf("lease 10.0.0.78 {\n  binding state free;\n  hardware ethernet %s;\n}\n", "52:54:00:00:aa:02")
	require.NoError(t, clusterDir(r.Dir).write("dhcpd.leases", []byte(leases), 0o644))
	vm("off", "52:54:00:00:aa:03", "10.9.0.3", corev1.PodSucceeded)
	text := func(name, spec string) string {
		return strings.Replace(provisioning(name, spec), "{cluster: "+name+"}", "{cluster: "+name+", cluster-type: virtlet-vm}", 1)
	}
	r.apply(text("vms", "masters:\n- m: {mac-address: '52:54:00:00:aa:01'}\nworkers:\n- w: {mac-address: '52:54:00:00:aa:02'}"))
	p := r.settle("vms")
	require.Equal(t, v1alpha1.PhaseInstalling, p.Status.Phase, p.Status.Message)
	ini := r.file("vms", contract.FileInventory)
	assert.Contains(t, ini, "m  ansible_ssh_host=10.9.0.1 ansible_ssh_port=22 ansible_ssh_user=root ansible_ssh_pass=root\n")
	assert.NotContains(t, ini, "[virtlet]")
	r.apply(text("more", "masters:\n- m: {mac-address: '52:54:00:00:aa:02'}"))
	p = r.settle("more")
	assert.Equal(t, match.HostClaimed, ready(p).Reason)
	assert.Contains(t, p.Status.Message, "belongs to Provisioning default/vms, as its node w")
	r.apply(text("more", "masters:\n- m: {mac-address: '52:54:00:00:aa:03'}"))
	p = r.settle("more")
	assert.Contains(t, p.Status.Message, "IP address not found for VM with MAC address 52:54:00:00:aa:03")
	r.apply(text("more", "masters:\n- m: {cpu: 1}"))
	p = r.settle("more")
	assert.Contains(t, p.Status.Message, "MAC address for VM m not provided")
	r.end("vms", 0, "")
	p = r.settle("vms")
	assert.Equal(t, v1alpha1.PhaseReady, p.Status.Phase, p.Status.Message)
	assert.Equal(t, map[string]string{"MASTER_m": "10.9.0.1", "WORKER_w": "10.9.0.2"}, r.configMap("vms"))
}

func testOldFields(t *testing.T, r *fixture) {
	r.host(1)
	r.apply(provisioning("old", "masters:\n- m: {cpu: 1}\nhostfile: /x\ndhcpLeaseFile: /var/lib/dhcp/dhcpd.leases"))
	p := r.settle("old")
	assert.Equal(t, v1alpha1.PhaseInstalling, p.Status.Phase, p.Status.Message)
	assert.Len(t, p.Status.Warnings, 2)
	r.said("Warning OldField spec.dhcpLeaseFile is of an older version and does nothing")
}
