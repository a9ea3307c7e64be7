package page

import (
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/capture"
)

// tornMAC is of node-002, whose capture ends in the middle of a packet.
var tornMAC = mac(2)

// recordedBoots are packets of node-001, which another DHCP server answers too, and of node-002.
func recordedBoots(at time.Time) map[string][]capture.Exchange {
	ours, addr := netip.MustParseAddr("172.22.0.1"), netip.MustParseAddr("172.22.0.51")
	return map[string][]capture.Exchange{
		mac(1): {
			{Time: at, Protocol: capture.DHCP, Kind: capture.Discover, Count: 2, Program: pxe.FirmwarePXE, Answers: []capture.Answer{
				{Time: at, Server: ours, Kind: capture.Offer, Addr: addr, File: "snponly.efi"},
				{Time: at, Server: netip.MustParseAddr("172.22.0.99"), Kind: capture.Offer, Addr: netip.MustParseAddr("10.0.0.7")},
			}},
			{Time: at.Add(time.Second), Protocol: capture.DHCP, Kind: capture.Request, Count: 1, Program: pxe.FirmwareIPXE, Answers: []capture.Answer{
				{Time: at, Server: ours, Kind: capture.Nak, Text: "wrong <network>"},
			}},
			{Time: at.Add(2 * time.Second), Protocol: capture.TFTP, Kind: capture.Read, Count: 1, File: "/snponly.efi", Answers: []capture.Answer{
				{Time: at, Server: ours, Kind: capture.Options, Size: 1e6}, {Time: at, Server: ours, Kind: capture.Data},
			}},
			{Time: at.Add(3 * time.Second), Protocol: capture.TFTP, Kind: capture.Read, Count: 1, File: "grub.cfg", GaveUp: "User aborted"},
		},
		tornMAC: {{Time: at, Protocol: capture.DHCP, Answers: []capture.Answer{{Time: at, Server: ours, Kind: capture.Ack, Addr: addr}}}},
	}
}

// TestANodeShowsWhatItAskedWhenItBooted: packets and what the boot servers noted, in order of time.
func TestANodeShowsWhatItAskedWhenItBooted(t *testing.T) {
	of := rack(10)
	at := of.traces[0].Since
	of.traces[0].Marks = append(of.traces[0].Marks,
		boottrace.Mark{Step: boottrace.StepTFTP, Time: at.Add(2 * time.Second), Detail: "snponly.efi", Bytes: 5e5, Total: 1e6},
		boottrace.Mark{Step: boottrace.StepScript, Time: at.Add(4 * time.Second), Detail: "wait", Refused: "its disk has data"},
	)
	s := newServer(t, of)
	b := logIn(t, s)
	boots := b.open("/nodes/node-001").id("boots")
	var rows []string
	for _, row := range boots.all("tr")[1:] {
		cells := texts(row.all("td"))
		rows = append(rows, cells[0]+" | "+cells[1]+" | "+cells[2])
	}
	assert.Equal(t, []string{
		"DHCP | DISCOVER by PXE firmware, 2 times | OFFER of 172.22.0.51, boot program snponly.efi by 172.22.0.1, this appliance" +
			"OFFER of 10.0.0.7 by 172.22.0.99, another server",
		"DHCP | REQUEST by iPXE | NAK: wrong <network> by 172.22.0.1, this appliance",
		"TFTP | reads /snponly.efi | has 1.0 MB by 172.22.0.1, this appliancesends it, 500 kB of 1.0 MB by 172.22.0.1, this appliance",
		"TFTP | reads grub.cfgIt ended the transfer: User aborted | No answer was seen.",
		"HTTP | Got its boot script: wait | its disk has data by 172.22.0.1, this appliance",
		"HTTP | Loads a ramdisk: ramdisk.img | 12 MB of 80 MB, the connection ended by 172.22.0.1, this appliance",
	}, rows)
	assert.Contains(t, boots.text(), "boot 2 since the daemon started")

	torn := b.open("/nodes/node-002").id("boots")
	assert.Contains(t, torn.text(), "not all of its packets could be read: read capture of "+tornMAC)
	assert.Contains(t, torn.text(), "The daemon was restarted after its last boot.")
	assert.Contains(t, torn.text(), "not captured")
	assert.Contains(t, torn.text(), "ACK of 172.22.0.51")

	assert.Contains(t, b.open("/nodes/node-003").id("boots").text(), "It has not booted from the network")
	unknown := b.open("/nodes/52:54:00:99:00:01").id("boots")
	assert.Contains(t, unknown.text(), "Asked for an address")
	assert.Contains(t, unknown.text(), "Its packets were not captured.")

	full := logIn(t, newServer(t, full())).open("/nodes/node-003").id("boots")
	assert.Len(t, full.all("tr"), maxBootRows+1)
	assert.Contains(t, full.text(), "200 older lines are left out.")
}

// TestPacketsAreShownToWhoeverMaySeeThem: without the right the rest of the page is there.
func TestPacketsAreShownToWhoeverMaySeeThem(t *testing.T) {
	api := newAPIServer(t)
	api.forbids = true
	w := logInAs(t, newServerWith(t, rack(10), api.deeds()), Owner).ask("GET", "/nodes/node-001", "")
	require.Equal(t, http.StatusOK, w.Code)
	boots := parse(t, w.Body.Bytes()).id("boots").text()
	assert.Contains(t, boots, "Packets: Not shown: the appliance's API server does not allow that to your role.")
	assert.NotContains(t, boots, "172.22.0.99")
	assert.Contains(t, boots, "Loads a ramdisk", "the boot servers' own notes")
}

// TestPacketsAreReadWhileSomebodyLooks: the page is shown meanwhile, and drawn again when more is on the wire.
func TestPacketsAreReadWhileSomebodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServerOffline(t, rack(1))
		say, asked := make(chan []capture.Exchange), []string{}
		s.sources.Packets = func(mac string) ([]capture.Exchange, error) {
			if asked = append(asked, mac); mac != tornMAC && len(asked)%2 == 1 {
				return <-say, nil
			}
			return nil, nil
		}
		b := logIn(t, s)
		assert.Contains(t, b.open("/nodes/node-000").id("boots").text(), "It is being asked.")
		say <- nil
		synctest.Wait()
		assert.Contains(t, b.open("/nodes/node-000").id("boots").text(), "It has not booted from the network")

		before := mustPicture(t, s).watched
		time.Sleep(4 * time.Second)
		b.open("/nodes/node-000")
		say <- []capture.Exchange{{Protocol: capture.DHCP, Kind: capture.Discover, Count: 1}}
		synctest.Wait()
		assert.NotEqual(t, before, mustPicture(t, s).watched)
		assert.Contains(t, b.open("/nodes/node-000").id("boots").text(), "No answer was seen.")
		assert.Equal(t, []string{mac(0), mac(1000), mac(0), mac(1000)}, asked, "each of its MACs, once for all who look")
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}
