package metal3provider

import (
	"fmt"
	"testing"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// addTemplate makes a pool of n addresses, and a template that uses it.
func (r *fixture) addTemplate(n int) {
	start, end := v1alpha1.Address("10.9.0.1"), v1alpha1.Address(fmt.Sprintf("10.9.0.%d", n))
	p := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nodes"}}
	p.Spec.NamePrefix, p.Spec.Prefix, p.Spec.DNSServers = "nodes", 24, []v1alpha1.Address{"10.9.0.254"}
	p.Spec.Pools = []v1alpha1.Range{{Start: &start, End: &end}}
	require.NoError(r.t, r.api.Create(r.t.Context(), p))

	t := &v1beta2.Metal3DataTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "t"}}
	t.Spec.MetaData = &v1beta2.MetaData{
		Indexes:             []v1beta2.MetaDataIndex{{Key: "hostname", Prefix: "node-", Step: 1}},
		IPAddressesFromPool: []v1beta2.FromPool{{Key: "address", Name: "nodes"}},
		DNSServersFromPool:  []v1beta2.FromPool{{Key: "dns", Name: "nodes"}},
	}
	t.Spec.NetworkData = &v1beta2.NetworkData{Networks: v1beta2.Networks{IPv4: []v1beta2.StaticNetwork{{
		Network: v1beta2.Network{ID: "a", Link: "eth0"}, IPAddressFromIPPool: "nodes",
	}}}}
	require.NoError(r.t, r.api.Create(r.t.Context(), t))
}

func (r *fixture) data() (all []v1beta2.Metal3Data) {
	var list v1beta2.Metal3DataList
	require.NoError(r.t, r.api.List(r.t.Context(), &list))
	return list.Items
}

// dataInvariants hold at all times: an index and an address are given once.
func (r *fixture) dataInvariants() {
	r.t.Helper()
	indexes := map[string]string{}
	for _, d := range r.data() {
		at := fmt.Sprint(d.Spec.Template.Name, d.Spec.Index)
		require.Empty(r.t, indexes[at], "index of %s and %s", d.Name, indexes[at])
		indexes[at] = d.Name
	}
	var addresses ipamv1.IPAddressList
	require.NoError(r.t, r.api.List(r.t.Context(), &addresses))
	seen := map[string]string{}
	for _, a := range addresses.Items {
		require.Empty(r.t, seen[a.Spec.Address], "address of %s and %s", a.Name, seen[a.Spec.Address])
		seen[a.Spec.Address] = a.Name
	}
}

// testData: a machine with a template gets an index, addresses and Secrets before its host gets an image; all of it is
// free again once the machine is gone, and the lowest index is used first.
func testData(t *testing.T, r *fixture) {
	r.addTemplate(2)
	r.addCluster("edge")
	r.provisionCluster("edge")
	withTemplate := func(_ *clusterv1.Machine, m *machine) { m.Spec.DataTemplate = &v1beta2.ObjectReference{Name: "t"} }
	for i := range 3 {
		r.addHost(fmt.Sprintf("host-%d", i))
		r.addMachine("edge", fmt.Sprintf("m-%d", i), withTemplate)
		r.bootstrap(fmt.Sprintf("m-%d", i))
	}

	// 9: as long as there is no data, the host is claimed and has no image.
	r.round()
	for _, h := range r.hosts() {
		assert.NotNil(t, h.Spec.ConsumerRef)
		assert.Nil(t, h.Spec.Image)
	}
	assert.Equal(t, v1beta2.ReasonWaitingForData, r.condition(r.machine("m-0"), v1beta2.ConditionDataReady).Reason)

	// 10 and 11, under fire. The pool has two addresses for three machines.
	installed := func() (n int) {
		for _, h := range r.hosts() {
			if h.Status.Provisioning.State == metal3api.StateProvisioned {
				n++
			}
		}
		return n
	}
	r.killRandomly(4, 3)
	r.until("two are installed", func() bool { r.invariants(); r.dataInvariants(); return installed() == 2 }, r.operate)
	r.fatal = nil
	r.round()
	var waiting string
	for _, m := range r.machines() {
		h := r.host(hostName(&m))
		if m.Status.RenderedData == nil {
			waiting = m.Name
			assert.Nil(t, h.Spec.Image)
			assert.Contains(t, r.condition(&m, v1beta2.ConditionDataReady).Message, "the pool has no free address")
			continue
		}
		d := &v1beta2.Metal3Data{}
		r.get(m.Status.RenderedData.Name, d)
		secret := &corev1.Secret{}
		r.get(m.Name+"-metadata", secret)
		assert.Equal(t, corev1.SecretType("infrastructure.cluster.x-k8s.io/secret"), secret.Type)
		text := string(secret.Data["metaData"])
		assert.Contains(t, text, fmt.Sprintf("hostname: node-%d\n", d.Spec.Index))
		assert.Contains(t, text, fmt.Sprintf("providerid: metal3/%s/%s\n", h.Name, m.Name))
		assert.Contains(t, text, "address: 10.9.0.")
		assert.Contains(t, text, "dns: 10.9.0.254\n")
		r.get(m.Name+"-networkdata", secret)
		assert.Contains(t, string(secret.Data["networkData"]), "netmask: 255.255.255.0")
		assert.Equal(t, m.Name+"-metadata", h.Spec.MetaData.Name)
		assert.Equal(t, m.Name+"-networkdata", h.Spec.NetworkData.Name)
	}
	require.NotEmpty(t, waiting)
	template := &v1beta2.Metal3DataTemplate{}
	r.get("t", template)
	assert.Len(t, template.Status.Indexes, 3)

	// d2: one is deleted, and what it had goes to the one that waits.
	victim := "m-0"
	if waiting == victim {
		victim = "m-1"
	}
	r.deleteMachine(victim)
	r.until("the waiting one is installed", func() bool {
		r.dataInvariants()
		r.get("t", template)
		return r.machine(waiting).Status.RenderedData != nil && r.isGone(victim, &machine{}) && len(template.Status.Indexes) == 2
	}, r.operate)

	// d8: the template and the pool first, then the rest: all of it goes.
	require.NoError(t, r.api.Delete(t.Context(), template))
	p := &v1alpha1.IPPool{}
	r.get("nodes", p)
	require.NoError(t, r.api.Delete(t.Context(), p))
	for _, m := range r.machines() {
		r.deleteMachine(m.Name)
	}
	r.until("all of it is gone", func() bool {
		return len(r.machines())+len(r.data()) == 0 && r.isGone("t", template) && r.isGone("nodes", p)
	}, r.operate)
}
