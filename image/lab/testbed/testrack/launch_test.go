package testrack_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/testbed/testrack"
	"firstlight.dev/firstlight/image/lab/vswitch"
)

// Two servers, one with BIOS and one with UEFI, from power on to launched, and no frame on the
// switch that was for somebody outside.
func TestTwoServersAtOnce(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 60*time.Minute, "legacy", "UEFI")
	for _, n := range r.nodes {
		r.plugNode(n, "")
	}
	r.power()
	r.launched()
	r.agree()
	assert.NotContains(t, r.sshTo(r.nodes[0], "ls /sys/firmware"), "efi")
	assert.Contains(t, r.sshTo(r.nodes[1], "ls /sys/firmware"), "efi")
	t.Log(r.run("kubectl", "get", "launches"))
	assert.Empty(t, r.rack.OutsideAddresses(), "frames were for addresses outside the rack")
}

// Of three servers one was never plugged into the network and one loses its cable again and again.
// The third is launched, the launch names the dead one, and is taken back when cables are mended.
func TestADeadAndAFlappingServerBesideAThird(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 100*time.Minute, "legacy", "legacy", "legacy")
	var boxes []*testrack.Server
	for _, n := range r.nodes {
		boxes = append(boxes, r.plugNode(n, ""))
	}
	dead, flapping := boxes[1], boxes[2]
	dead.Cable().SetFault(vswitch.Fault{Cut: true})
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for cut := true; ; cut = !cut {
			select {
			case <-stop:
				flapping.Cable().SetFault(vswitch.Fault{})
				return
			case <-time.After(20 * time.Second):
				flapping.Cable().SetFault(vswitch.Fault{Cut: cut})
			}
		}
	}()
	r.power()
	r.becomes("node1", func(n status.Node) bool { return n.Verified })
	d := r.launch(func(l status.Launch) bool { return l.State == status.LaunchFailed && strings.Contains(l.Text, "node2") })
	assert.Contains(t, d.Launch.Text, "node2 was switched on and never heard on the provisioning network")
	assert.NotContains(t, d.Launch.Text, "node1")
	t.Log(r.run("firstlightd", "why"))
	close(stop)
	<-ended
	dead.Cable().SetFault(vswitch.Fault{})
	r.launched()
	r.agree()
}

// The appliance loses its power in every phase of a server, and the server is launched all the same.
func TestPowerCutsOfTheApplianceInEveryPhase(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 100*time.Minute, "legacy")
	box := r.node1("")
	r.switchOn()
	for _, c := range []struct {
		phase string
		at    func(status.Node) bool
	}{
		{"pre-flight", func(n status.Node) bool { return n.Rule == "preflight" }},
		{"registering", func(n status.Node) bool { return n.State == "registering" }},
		{"inspecting", func(n status.Node) bool { return n.State == "inspecting" }},
		{"writing", func(n status.Node) bool { return n.State == "provisioning" && written(t, box) > 100<<20 }},
		{"verifying", func(n status.Node) bool { return n.State == "provisioned" && !n.Verified }},
	} {
		n := r.becomes("node1", func(n status.Node) bool { return n.Verified || c.at(n) })
		require.False(t, n.Verified, "it was never seen %s", c.phase)
		r.cut()
		t.Logf("power cut while %s: %s, %s", c.phase, n.State, n.Why)
		r.switchOn()
	}
	r.launched()
	r.agree()
}

// A server's cable is pulled out and plugged in again while it boots from the network, and while
// its image flows.
func TestAServerIsPluggedInAgain(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 80*time.Minute, "legacy")
	box := r.node1("")
	r.power()
	pull := func(what string) {
		box.Cable().SetFault(vswitch.Fault{Cut: true})
		time.Sleep(45 * time.Second)
		box.Cable().SetFault(vswitch.Fault{})
		t.Logf("out and in again while %s", what)
	}
	r.becomes("node1", func(n status.Node) bool { return n.Rule == "loading" })
	pull("its ramdisk is loaded")
	r.until("bytes on the disk", func() string { return mebibytes(written(t, box)) }, func(string) bool { return written(t, box) > 100<<20 })
	pull("its disk is written")
	r.launched()
	r.agree()
}

// Every tenth frame to and from a server is lost.
func TestALossyWire(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 100*time.Minute, "legacy")
	box := r.node1("")
	box.Cable().SetFault(vswitch.Fault{Loss: 0.1})
	r.power()
	r.launched()
	r.agree()
	s := box.Cable().Stats()
	t.Logf("%d frames sent, %d received, %d lost", s.Sent, s.Received, s.Lost)
	assert.Positive(t, s.Lost)
}

// Somebody else's DHCP server is on the switch: nothing is switched on and nobody is answered, and
// all goes on by itself when it is gone.
func TestAForeignDHCPServerOnTheSwitch(t *testing.T) {
	need(t, "rack-all")
	r := newRoom(t, 60*time.Minute, "legacy")
	box := r.node1("")
	var conn net.PacketConn
	require.NoError(t, netns.Do(r.rack.Network(), func() (err error) {
		conn, err = server4.NewIPv4UDPConn(netns.BridgeName, &net.UDPAddr{Port: dhcpv4.ServerPort})
		return err
	}))
	foreign, err := server4.NewServer("", nil, func(conn net.PacketConn, _ net.Addr, m *dhcpv4.DHCPv4) {
		kind := dhcpv4.MessageTypeOffer
		if m.MessageType() == dhcpv4.MessageTypeRequest {
			kind = dhcpv4.MessageTypeAck
		}
		here := net.ParseIP(testrack.BMCAddr)
		answer, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(net.IPv4(172, 22, 0, 240)),
			dhcpv4.WithServerIP(here), dhcpv4.WithLeaseTime(600), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(here)))
		if err == nil {
			_, _ = conn.WriteTo(answer.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort})
		}
	}, server4.WithConn(conn))
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = foreign.Serve() }()
	r.power()
	n := r.becomes("node1", func(n status.Node) bool { return n.Rule == "foreign-dhcp" })
	assert.Contains(t, n.Why, testrack.BMCAddr)
	time.Sleep(30 * time.Second) // nothing follows from it by itself
	assert.False(t, box.IsOn(), "it was switched on")
	assert.Empty(t, box.BMC().Writes())
	require.NoError(t, foreign.Close())
	<-ended
	t.Log("the foreign server is gone")
	r.launched()
	r.agree()
}

// launched waits until every node is proven, as an owner's script would.
func (r *room) launched() {
	r.t.Helper()
	began := time.Now()
	r.launch(func(l status.Launch) bool { return l.State == status.LaunchSucceeded })
	r.t.Logf("launched after %s: %s", time.Since(began).Round(time.Second), r.run("firstlightd", "status", "--wait"))
	assert.Equal(r.t, "True", r.run("kubectl", "get", "launch", "rack", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`))
}

// launch waits for the launch to be so, and logs what each node does meanwhile.
func (r *room) launch(so func(status.Launch) bool) status.Document {
	r.t.Helper()
	return r.document(func(d status.Document) bool { return so(d.Launch) })
}

// becomes waits for a node to be so.
func (r *room) becomes(name string, so func(status.Node) bool) (n status.Node) {
	r.t.Helper()
	r.document(func(d status.Document) bool {
		for _, n = range d.Nodes {
			if n.Name == name && so(n) {
				return true
			}
		}
		return false
	})
	return n
}

func (r *room) document(so func(status.Document) bool) status.Document {
	r.t.Helper()
	began, said := time.Now(), map[string]string{}
	tell := func(what, now, more string) {
		if said[what] != now {
			r.t.Logf("%s %5s %s: %s%s", time.Now().Format("15:04:05"), time.Since(began).Round(time.Second), what, now, more)
			said[what] = now
		}
	}
	for ; ; time.Sleep(500 * time.Millisecond) {
		d, err := r.appliance.Status(r.ctx)
		require.NoError(r.t, r.ctx.Err(), "%v", said)
		if err != nil {
			continue // it starts, or starts again
		}
		tell("launch", string(d.Launch.State)+", "+d.Launch.Text, "")
		for _, n := range d.Nodes {
			tell(n.Name, n.State+", "+n.Rule, ": "+n.Why)
		}
		if so(d) {
			return d
		}
	}
}
