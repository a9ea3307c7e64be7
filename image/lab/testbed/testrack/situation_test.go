package testrack_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/testbed/testrack"
)

// stuck is a server that gets stuck, and what must be said of it.
type stuck struct {
	situation string // of docs/why.md
	says      string // a part of its sentence
	mode      string // firmware; "": there is no server
	drop      string // of its frames, as nft matches them
	silence   string // the situation in which all of its frames begin to be dropped
	entry     func(*node) string
	mac       string // of the server's NIC; "": that of the site
	firmware  bool   // boots by TFTP
	unless    string // the situation in which it is reset: OVMF's patience with DHCP and TFTP is short on a busy machine
}

// elsewhere is where a server that is not the appliance offers images.
const elsewhere = testrack.BMCAddr + ":8099"

// Servers get stuck on every step of their way, each in a rack of its own kind of trouble, and each is told.
// What is dropped is dropped by the switch, so that every program is the real one.
func TestServersThatAreStuckAreTold(t *testing.T) {
	need(t, "rack-all")
	with := func(lines string) func(*node) string {
		return func(n *node) string { n.extra = lines; return n.entry() }
	}
	changed := func(old, new string) func(*node) string {
		return func(n *node) string { return strings.Replace(n.entry(), old, new, 1) }
	}
	link := func(more string) func(*node) string {
		return func(n *node) string { return strings.Replace(n.entry(), "/24}]", "/24, "+more+"}]", 1) }
	}
	image := func(name string) func(*node) string {
		return with(fmt.Sprintf("    os: {url: \"http://%s/%s\", sha256: %q, format: raw}\n", elsewhere, name, strings.Repeat("0", 64)))
	}
	all := []stuck{
		// Pre-flight: nothing is switched on.
		{situation: "bmc-refused", says: "refuses the password of user", entry: changed("password: "+testrack.Password, "password: another"), mode: "legacy"},
		{situation: "bmc-silent", says: "nothing answers IPMI over LAN on port", entry: changed(testrack.BMCAddr+":", testrack.BMCAddr+":1")},
		{situation: "address-taken", says: "is used by", entry: func(n *node) string { return strings.Replace(n.entry(), n.address(), "172.22.0.199", 1) }, mode: "legacy"},
		{situation: "router-silent", says: "router 172.22.0.198 does not answer", entry: link("gateway: 172.22.0.198"), mode: "legacy"},
		{situation: "resolver-silent", says: "resolver 172.22.0.197", entry: link("dns: [172.22.0.197]"), mode: "legacy"},
		{situation: "image-unfit", says: "404", entry: image("absent"), mode: "legacy"},
		// From the firmware to the ramdisk.
		{situation: "never-seen", says: "never heard on the provisioning network", mode: "legacy", drop: "ether type 0-0xffff"},
		{situation: "no-request", says: "does not take the one it is offered", mode: "legacy", drop: "udp dport 67 @th,1984,24 0x350103"},
		{situation: "wrong-nic", says: "boots from its NIC 52:54:00:00:01:09", mode: "legacy", mac: "52:54:00:00:01:09",
			entry: func(n *node) string {
				return strings.Replace(n.entry(), "]\n", fmt.Sprintf(", \"52:54:00:00:01:09\"]\n    bootMAC: %q\n", n.mac()), 1)
			}},
		{situation: "no-tftp", says: "loads no boot program", mode: "UEFI", firmware: true, drop: "th dport { 69, 6180 }"}, // OVMF tries HTTP boot when TFTP fails
		{situation: "no-script", says: "asks for no script", mode: "UEFI", firmware: true, drop: "tcp dport 6180", unless: "no-tftp"},
		{situation: "no-kernel", says: "got its script and loads no kernel", mode: "legacy", drop: "@ih,0,32 0x47455420 @ih,0,72 != 0x474554202f69707865"}, // GET, but not GET /ipxe
		{situation: "load-stalled", says: "stopped loading", mode: "legacy", silence: "loading"},
	}
	firmwares := len(all)
	all = append(all, []stuck{
		// From the ramdisk on. They wait until the firmwares, which never sleep, are off: on two processors they
		// would starve the systems.
		{situation: "no-callback", says: "never called", mode: "legacy", drop: "tcp dport 6385"},
		{situation: "image-unreachable", says: "could not load its image", mode: "legacy", drop: "tcp dport 8099", entry: image("silent.raw")},
		{situation: "disk-too-small", says: "its disk is too small", mode: "legacy", entry: image("large.raw")},
		{situation: "wrong-network", says: "router " + testrack.BMCAddr + " does not answer it", mode: "legacy", drop: "arp daddr ip " + testrack.BMCAddr, entry: link("gateway: " + testrack.BMCAddr)},
		{situation: "booted-silent", says: "does not answer", mode: "legacy", drop: "tcp sport 22"},
	}...)
	modes := make([]string, len(all))
	r := newRoom(t, 2*time.Hour, modes...)
	r.elsewhere()
	r.network("ip addr add 172.22.0.199/24 dev " + netns.BridgeName) // somebody has an address that the site gives
	r.network("nft add table bridge stuck")
	r.network("nft add chain bridge stuck in { type filter hook prerouting priority -300 ; }")
	boxes := make([]*testrack.Server, len(all))
	for i, n := range r.nodes {
		c := all[i]
		if n.mode = c.mode; n.mode == "" {
			n.mode = "legacy"
		}
		if c.entry != nil {
			n.text = c.entry(n)
		}
		if c.mode != "" {
			s := n.server("")
			if s.NoROM = c.firmware; c.mac != "" {
				s.MAC = c.mac
			}
			boxes[i] = r.plug(s)
		}
		if c.drop != "" {
			r.network("nft add rule bridge stuck in ether saddr " + n.mac() + " " + c.drop + " drop")
		}
	}
	nodes := r.nodes
	r.nodes = nodes[:firmwares]
	r.power()
	began, told, was, reset := time.Now(), make([]string, len(all)), make([]string, len(all)), make([]time.Time, len(all))
	for open := len(all); open > 0; time.Sleep(time.Second) {
		require.NoError(t, r.ctx.Err(), "not told: %q", was)
		if open == len(all)-firmwares && len(r.nodes) == firmwares {
			r.nodes = nodes
			r.site()
			r.run("firstlightd", "reload")
		}
		d, err := r.appliance.Status(r.ctx)
		if err != nil {
			continue
		}
		for _, now := range d.Nodes {
			i := 0
			for r.nodes[i].name() != now.Name {
				i++
			}
			c := all[i]
			if told[i] != "" {
				continue
			}
			if was[i] != now.Rule {
				was[i] = now.Rule
				t.Logf("%5s %s (%s): %s, %s: %s", time.Since(began).Round(time.Second), now.Name, c.situation, now.State, now.Rule, now.Why)
			}
			if c.unless != "" && c.unless == now.Rule && time.Since(reset[i]) > 5*time.Minute {
				reset[i] = time.Now()
				require.NoError(t, boxes[i].BMC().Press("boot", "pxe"))
				require.NoError(t, boxes[i].BMC().Press("reset", "1"))
			}
			if c.silence != "" && c.silence == now.Rule {
				r.network("nft add rule bridge stuck in ether saddr " + r.nodes[i].mac() + " drop")
				all[i].silence = ""
			}
			if now.Rule != c.situation {
				continue
			}
			told[i] = now.Why
			open--
			t.Logf("%5s told: `%s`: %s", time.Since(began).Round(time.Second), c.situation, now.Why)
			assert.Contains(t, now.Why, c.says, c.situation)
			if boxes[i] == nil {
				continue
			}
			if now.State == "absent" {
				assert.Empty(t, boxes[i].BMC().Writes(), "pre-flight found something, and it was switched on")
			} else { // two processors have others to look after: it stays off
				r.run("kubectl", "-n", "metal3", "annotate", "bmh", now.Name, "baremetalhost.metal3.io/paused=told")
			}
			require.NoError(t, boxes[i].SwitchOff())
		}
	}
	t.Log(r.run("firstlightd", "why"))
}

// network runs a command in the rack's network.
func (r *room) network(command string) {
	r.t.Helper()
	words := append([]string{"--net=" + r.rack.Network(), "--"}, strings.Fields(command)...)
	out, err := exec.CommandContext(r.ctx, "nsenter", words...).CombinedOutput()
	require.NoError(r.t, err, "%s: %s", command, out)
}

// elsewhere offers images that are not the appliance's: silent.raw, and large.raw, which is larger than any
// disk here and whose length nobody says.
func (r *room) elsewhere() {
	r.t.Helper()
	var listener net.Listener
	require.NoError(r.t, netns.Do(r.rack.Network(), func() (err error) { listener, err = net.Listen("tcp", elsewhere); return err }))
	zeros := make([]byte, 1<<20)
	mux := http.NewServeMux()
	mux.HandleFunc("/silent.raw", func(w http.ResponseWriter, q *http.Request) {
		http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(zeros))
	})
	mux.HandleFunc("/large.raw", func(w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(http.StatusOK)
		for range 5 << 10 {
			if _, err := w.Write(zeros); err != nil {
				return
			}
		}
	})
	server := &http.Server{Handler: mux}
	go server.Serve(listener)
	r.t.Cleanup(func() { assert.NoError(r.t, server.Close()) })
}
