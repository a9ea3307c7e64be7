package operator

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

func TestKeysOfSystemsThatAreNoMore(t *testing.T) {
	one, two := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for _, c := range []struct {
		what        string
		before, now map[netip.Addr]system
		after       map[netip.Addr]system
		forget      []netip.Addr
	}{
		{"nothing is known yet", nil, map[netip.Addr]system{one: {Is: "h1@1"}}, map[netip.Addr]system{one: {Is: "h1@1"}}, nil},
		{"as before", map[netip.Addr]system{one: {Is: "h1@1"}}, map[netip.Addr]system{one: {Is: "h1@1"}}, map[netip.Addr]system{one: {Is: "h1@1"}}, nil},
		{"provisioned again", map[netip.Addr]system{one: {Is: "h1@1"}, two: {Is: "h2@1"}}, map[netip.Addr]system{one: {Is: "h1@2"}},
			map[netip.Addr]system{one: {Is: "h1@2", Renewed: true}, two: {Is: "h2@1"}}, []netip.Addr{one}},
		{"it was renewed before", map[netip.Addr]system{one: {Is: "h1@2", Renewed: true}}, map[netip.Addr]system{one: {Is: "h1@2"}},
			map[netip.Addr]system{one: {Is: "h1@2", Renewed: true}}, nil},
		{"another host at that address", map[netip.Addr]system{one: {Is: "h1@1"}}, map[netip.Addr]system{one: {Is: "h2@1"}},
			map[netip.Addr]system{one: {Is: "h2@1", Renewed: true}}, []netip.Addr{one}},
	} {
		after, forget := renewSystems(c.before, c.now)
		assert.Equal(t, c.after, after, c.what)
		assert.Equal(t, c.forget, forget, c.what)
	}
}

// testSoftwareKeys: Software knows the keys that the installer met; a changed one is refused with what to do,
// until the host was provisioned anew; an edit begins to count anew.
func testSoftwareKeys(t *testing.T, r *fixture) {
	key, machines := r.access(), r.machines(2)
	r.installed("edge", "masters:\n- m: {cpu: 1}\nworkers:\n- w: {cpu: 2}")
	keys := map[netip.Addr]string{}
	for _, m := range machines {
		m.AuthorizeKey(key)
		keys[netip.MustParseAddr(m.Addr)] = m.HostKey()
	}
	w := netip.MustParseAddr(machines[1].Addr)
	right := keys[w]
	learned := func() {
		require.NoError(t, r.clusterDir("edge").write(contract.FileLearned, remote.KnownHosts(keys), 0o644))
	}
	learned()
	r.apply(softwareText("masterSoftware: [jq]\nworkerSoftware: [jq]"))
	assert.Equal(t, v1alpha1.PhaseReady, r.software("tools").Status.Phase)

	keys[w] = machines[0].HostKey() // it was taken of the machine that was there before
	learned()
	r.apply(softwareText("masterSoftware: [jq]\nworkerSoftware: [jq, htop]"))
	sw := r.software("tools")
	assert.Contains(t, sw.Status.Message, "another machine has this address, or it was installed again; if that is meant, remove the lines of 127.0.7.2 from")
	r.now = r.now.Add(kud.RetryDelay(1))
	sw = r.software("tools")
	assert.Equal(t, int32(2), sw.Status.Attempt)
	r.apply(softwareText("masterSoftware: [jq]\nworkerSoftware: [htop]"))
	sw = r.software("tools")
	assert.Equal(t, int32(1), sw.Status.Attempt, "an edited Software waits as long as the one before")

	r.changeHost(2, func(b *host) { b.Status.OperationHistory.Provision.End = metav1.NewTime(r.now.Truncate(time.Second)) })
	r.settle("edge")
	assert.NotContains(t, r.file("edge", contract.FileLearned), w.String()+" "+machines[0].HostKey(),
		"the key of a system that is no more is still believed")
	assert.Contains(t, r.file("edge", contract.FileLearned), machines[0].Addr)
	r.end("edge", 0, "") // it is joined again
	r.settle("edge")
	r.now = r.now.Add(kud.RetryDelay(1))
	sw = r.software("tools")
	assert.Equal(t, v1alpha1.PhaseReady, sw.Status.Phase, sw.Status.Message)
	assert.Contains(t, r.file("edge", contract.FileLearned), w.String()+" "+right)
}
