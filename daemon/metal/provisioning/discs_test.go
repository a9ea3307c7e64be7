package provisioning

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/pxe"
)

const siteWithDisc = `
networks: {provisioning: {gateway: 172.22.0.254}}
nodes:
  - name: other
    bmc: {address: "redfish://172.22.0.3/redfish/v1/Systems/1", username: a, password: b}
  - name: node-1
    bmc: {address: "redfish-virtualmedia+https://172.22.0.2:8443/redfish/v1/Systems/1", username: a, password: b}
    links: [{network: provisioning, mac: "52:54:00:00:00:01", address: 172.22.0.201/24, dns: [10.0.0.2, "2001:db8::53"]}]
`

// discRack is one node that boots from a disc, and what is known of it.
type discRack struct {
	*Discs
	host    *metal3api.BareMetalHost
	current bool
	called  time.Time
	now     time.Time
	minted  int
	failing error
}

func newDiscRack(t *testing.T) *discRack {
	s, problems := site.Load("site.yaml", []byte(siteWithDisc))
	require.Empty(t, problems)
	s = s.WithDefaults()
	r := &discRack{current: true, now: time.Unix(1_700_000_000, 0)}
	r.host = &metal3api.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	r.host.Spec.BMC.Address = string(s.Nodes[1].BMC.Address)
	r.host.Status.Provisioning.State, r.host.Status.Provisioning.ID = metal3api.StateInspecting, "uuid-1"
	r.Discs = &Discs{
		Site: func() *site.Site { return s },
		Host: func(mac string) (*metal3api.BareMetalHost, bool) {
			assert.Equal(t, "52:54:00:00:00:01", mac)
			return r.host, r.current
		},
		Mint: func(m pxe.Machine) (pxe.Secret, error) {
			assert.Equal(t, "172.22.0.201", m.Addr.String(), "the token is good from another address")
			r.minted++
			return pxe.Secret(fmt.Sprint("token-", r.minted)), r.failing
		},
		CalledAt: func(string) time.Time { return r.called },
		Args:     func(token pxe.Secret) []string { return []string{"token=" + token.Reveal()} },
		Now:      func() time.Time { return r.now },
	}
	return r
}

// read is the token of the disc that the node's BMC reads, or why there is none.
func (r *discRack) read(t *testing.T) string {
	m, ok := r.MachineAt(netip.MustParseAddr("172.22.0.2"))
	require.True(t, ok)
	args, since, err := r.Arguments(m)
	if err != nil {
		return err.Error()
	}
	assert.False(t, since.After(r.now))
	return args[0]
}

func TestADiscIsForTheNodeWhoseBMCReadsIt(t *testing.T) {
	r := newDiscRack(t)
	for _, stranger := range []string{"172.22.0.3", "172.22.0.201", "10.0.0.1"} {
		_, ok := r.MachineAt(netip.MustParseAddr(stranger))
		assert.False(t, ok, stranger)
	}
	m, ok := r.MachineAt(netip.MustParseAddr("::ffff:172.22.0.2"))
	require.True(t, ok)
	args, since, err := r.Arguments(m)
	require.NoError(t, err)
	assert.Equal(t, r.now, since)
	assert.Equal(t, []string{
		"token=token-1", "BOOTIF=01-52-54-00-00-00-01", "firstlight.address=172.22.0.201/24",
		"firstlight.gateway=172.22.0.254", "firstlight.dns=10.0.0.2",
	}, args)
	r.failing = errors.New("no random numbers")
	r.host.Status.Provisioning.ID = "uuid-2"
	assert.Equal(t, "no random numbers", r.read(t))
}

// TestADiscStaysTheSameAsLongAsItIsInUse: a token that is replaced ends the agent that has it, and half of one disc
// with half of another is none.
func TestADiscStaysTheSameAsLongAsItIsInUse(t *testing.T) {
	r := newDiscRack(t)
	assert.Equal(t, "token=token-1", r.read(t))
	for range 10 {
		r.now = r.now.Add(discIdle - time.Second)
		assert.Equal(t, "token=token-1", r.read(t), "its BMC reads slowly")
	}

	r.now = r.now.Add(5 * discIdle)
	r.called = r.now.Add(-time.Minute)
	r.host.Status.Provisioning.State = metal3api.StateAvailable
	assert.Equal(t, "token=token-1", r.read(t), "its agent is at work, and waits for the image")

	r.host.Status.Provisioning.State = metal3api.StateProvisioning
	r.now = r.now.Add(2 * discIdle)
	assert.Equal(t, "token=token-2", r.read(t), "it boots again after a while")
	r.host.Status.Provisioning.ID = "uuid-2"
	assert.Equal(t, "token=token-3", r.read(t), "Ironic has registered it again")

	r.host.Status.Provisioning.State = metal3api.StateProvisioned
	assert.Equal(t, "host node-1 is in service and boots its own disk", r.read(t), "at once")
}

// TestADaemonThatStartsEndsNoAgent: the token of its disc is known no more, and another one would end it.
func TestADaemonThatStartsEndsNoAgent(t *testing.T) {
	r := newDiscRack(t)
	r.current = false
	assert.Contains(t, r.read(t), "still starting")
	r.current, r.called = true, r.now.Add(-time.Minute)
	assert.Equal(t, "the agent from a disc of before the daemon started is at work", r.read(t))
	assert.Zero(t, r.minted)
	r.now = r.now.Add(discIdle)
	assert.Equal(t, "token=token-1", r.read(t))
}

// TestTheAgentOfADiscIsToldWhatThatOfAScriptIs, and nothing that GRUB would take for its own.
func TestTheAgentOfADiscIsToldWhatThatOfAScriptIs(t *testing.T) {
	c := ironic.Config{Addr: netip.MustParseAddr("172.22.0.1"), HTTPPort: 6180, KernelArgs: kernelArgs}
	assert.Equal(t, []string{
		"ipa-inspection-callback-url=https://172.22.0.1:6385/b/a-B_9/v1/continue_inspection",
		"ipa-inspection-collectors=default,contents,devices",
		"ipa-api-url=https://172.22.0.1:6385/b/a-B_9",
		"ipa-image-download-connection-retries=2", "panic=30", "console=tty0", "console=ttyS0,115200", "tsc=nowatchdog",
	}, c.DiscArgs("a-B_9"))
}
