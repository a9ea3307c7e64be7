package verify

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

var (
	noon    = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	address = netip.MustParseAddr("10.10.110.21")
	router  = netip.MustParseAddr("10.10.110.1")
	dns     = netip.MustParseAddr("10.10.110.2")
)

// node is a node with one static address, a router, a resolver and a BMC.
func node(t *testing.T) site.Node {
	s, problems := site.Load("site.yaml", []byte(`networks:
  baremetal: {cidr: 10.10.110.0/24, gateway: 10.10.110.1, dns: [10.10.110.2]}
nodes:
  - name: node-1
    macs: ["52:54:00:12:34:01"]
    bmc: {address: "ipmi://10.30.0.101", username: admin, password: "change me"}
    rootDevice: {minSizeGigabytes: 8}
    links:
      - {network: provisioning, mac: "52:54:00:12:34:01", address: none}
      - {network: baremetal, mac: "52:54:00:12:34:02", address: 10.10.110.21/24}
`))
	require.Empty(t, problems)
	return s.WithDefaults().Nodes[0]
}

// good are facts with which every check holds.
func good(t *testing.T) Facts {
	return Facts{
		Node: node(t), BMC: bmc.Answer{Verdict: bmc.OK, Text: "takes the password"},
		Users: map[netip.Addr]Reply{address: {}}, Routers: map[netip.Addr]Reply{router: {From: "52:54:00:00:00:fe"}},
		Resolvers: map[netip.Addr]Reply{dns: {From: "yes"}}, DHCP: DHCP{Enabled: true, Phase: "serving", Text: "serving eth1"},
		Image: Image{Name: "debian-13", Bytes: 1 << 30}, Clock: Clock{Now: noon, Built: noon.Add(-time.Hour)},
	}
}

func TestPreflight(t *testing.T) {
	for _, c := range []struct {
		name, check string
		change      func(*Facts)
		state       status.CheckState
		text        string
	}{
		{"BMC is dead", "bmc", func(f *Facts) { f.BMC = bmc.Answer{Verdict: bmc.Silent, Text: "does not answer", Fix: "cable"} }, status.CheckFailed, "does not answer"},
		{"BMC refuses", "bmc", func(f *Facts) {
			f.BMC = bmc.Answer{Verdict: bmc.Refused, Text: "refuses the password", Fix: "correct it"}
		}, status.CheckFailed, "refuses"},
		{"BMC is busy", "bmc", func(f *Facts) { f.BMC = bmc.Answer{Verdict: bmc.Busy, Text: "no room", Fix: "wait"} }, status.CheckWaiting, "no room"},
		{"BMC has another certificate", "bmc", func(f *Facts) {
			f.BMC, f.Certificate = bmc.Answer{Verdict: bmc.Changed}, bmctrust.Change{Pinned: "aa", Other: "bb"}
		}, status.CheckFailed, "sha256 bb, pinned is aa"},
		{"Ironic has it, and its BMC another certificate", "bmc", func(f *Facts) {
			f.Registered, f.BMC, f.Certificate = true, bmc.Answer{}, bmctrust.Change{Pinned: "aa", Other: "bb"}
		}, status.CheckFailed, "sha256 bb, pinned is aa"},
		{"BMC was not asked", "bmc", func(f *Facts) { f.BMC = bmc.Answer{} }, status.CheckWaiting, "not asked"},
		{"no BMC", "bmc", func(f *Facts) { f.Node.BMC, f.BMC = nil, bmc.Answer{} }, status.CheckFailed, "does not ask on the provisioning network"},
		{"no BMC, and it boots", "bmc", func(f *Facts) { f.Node.BMC, f.BMC, f.Asks = nil, bmc.Answer{}, true }, status.CheckOK, "asks on the provisioning network"},
		{"no BMC, applied to the API, and it boots", "bmc", func(f *Facts) {
			f.Node.BMC, f.BMC, f.Asks, f.Applied = nil, bmc.Answer{}, true, true
		}, status.CheckFailed, "its BareMetalHost has no BMC"},
		{"no BMC, registered", "bmc", func(f *Facts) { f.Node.BMC, f.BMC, f.Registered = nil, bmc.Answer{}, true }, status.CheckSkipped, "a person must switch it on"},
		{"no MAC, Redfish", "macs", func(f *Facts) {
			*f = withoutMACs(*f, "redfish://10.0.0.1/redfish/v1/Systems/1")
			f.BootMAC = "52:54:00:12:34:02"
		}, status.CheckOK, "as its BMC says"},
		{"no MAC, Redfish says none", "macs", func(f *Facts) {
			*f = withoutMACs(*f, "redfish://10.0.0.1/redfish/v1/Systems/1")
			f.BootMACError = "none"
		}, status.CheckFailed, "no MAC is known: none"},
		{"no MAC, IPMI", "macs", func(f *Facts) { *f = withoutMACs(*f, "ipmi://10.0.0.1") }, status.CheckSkipped, "the BMC's address says which server it is"},
		{"Ironic has it", "bmc", func(f *Facts) { f.Registered, f.BMC = true, bmc.Answer{} }, status.CheckOK, "Ironic"},
		{"from a disc", "media", func(f *Facts) { *f = fromDisc(t, *f) }, status.CheckOK, "has a drive"},
		{"from a disc, whoever answers DHCP", "dhcp", func(f *Facts) {
			*f = fromDisc(t, *f)
			f.DHCP = DHCP{Enabled: true, Phase: "silent"}
		}, status.CheckSkipped, "asks nobody for an address"},
		{"from a disc, Ironic has it", "media", func(f *Facts) {
			*f = fromDisc(t, *f)
			f.Registered, f.DriveError = true, "no drive"
		}, status.CheckOK, "handed over"},
		{"from a disc, without a drive", "media", func(f *Facts) {
			*f = fromDisc(t, *f)
			f.DriveError = bmc.ErrNoDrive.Error()
		}, status.CheckFailed, "it cannot be given a disc: the BMC lists no virtual drive"},
		{"from a disc, without an address, applied to the API", "media", func(f *Facts) {
			*f = fromDisc(t, *f)
			f.Node.Links, f.Users, f.Registered, f.Applied = nil, nil, true, true
		}, status.CheckFailed, "nothing gives it an address"},
		{"a duplicate MAC", "macs", func(f *Facts) { f.DuplicateMACs = map[site.MAC]string{"52:54:00:12:34:02": "host other"} }, status.CheckFailed, "52:54:00:12:34:02 is also that of host other"},
		{"address taken", "addresses", func(f *Facts) { f.Users[address] = Reply{From: "52:54:00:99:99:99"} }, status.CheckFailed, "10.10.110.21 is used by 52:54:00:99:99:99"},
		{"address used by itself", "addresses", func(f *Facts) { f.Recorded = true; f.Users[address] = Reply{From: "52:54:00:12:34:02"} }, status.CheckOK, "its present system has it"},
		{"address out of reach", "addresses", func(f *Facts) { f.Users = nil }, status.CheckSkipped, "cannot be asked from here"},
		{"no link of our own", "addresses", func(f *Facts) { f.Users[address] = Reply{Problem: "network is down"} }, status.CheckFailed, "network is down"},
		{"no static address", "addresses", func(f *Facts) { f.Node.Links = nil }, status.CheckSkipped, "no static"},
		{"router silent", "gateway", func(f *Facts) { f.Routers[router] = Reply{} }, status.CheckFailed, "10.10.110.1 does not answer"},
		{"router out of reach", "gateway", func(f *Facts) { f.Routers = nil }, status.CheckSkipped, "cannot be asked from here"},
		{"no router given", "gateway", func(f *Facts) { f.Node.Links = nil }, status.CheckSkipped, "none"},
		{"no resolver there", "dns", func(f *Facts) { f.Resolvers[dns] = Reply{Problem: "what answers is no resolver"} }, status.CheckFailed, "no resolver"},
		{"foreign DHCP", "dhcp", func(f *Facts) { f.DHCP = DHCP{Enabled: true, Phase: "silent", Text: "DHCP server 1.2.3.4 answers"} }, status.CheckFailed, "1.2.3.4"},
		{"listening", "dhcp", func(f *Facts) { f.DHCP = DHCP{Enabled: true, Phase: "probing"} }, status.CheckWaiting, "listened"},
		{"no link", "dhcp", func(f *Facts) { f.DHCP = DHCP{Enabled: true, Phase: "broken", Text: "no DHCP on eth1"} }, status.CheckFailed, "no DHCP on eth1"},
		{"somebody else's DHCP", "dhcp", func(f *Facts) { f.DHCP = DHCP{} }, status.CheckSkipped, "somebody else"},
		{"no image", "image", func(f *Facts) { f.Image = Image{Problem: "os.image \"x\" is not here", Fix: "use debian-13"} }, status.CheckFailed, "not here"},
		{"image larger than the hint", "image", func(f *Facts) { f.Image.Bytes = 9<<30 - 1 }, status.CheckFailed, "needs 9.0 GiB, rootDevice is content with 8 GiB"},
		{"image larger than the disk", "image", func(f *Facts) { f.Disk = 1<<30 - 1 }, status.CheckFailed, "needs 1.0 GiB, the disk has 1024 MiB"},
		{"the disk is known and larger than the hint", "image", func(f *Facts) { f.Image.Bytes, f.Disk = 9<<30, 1<<40 }, status.CheckOK, "9.0 GiB"},
		{"image not looked for", "image", func(f *Facts) { f.Image = Image{} }, status.CheckWaiting, "not looked for"},
		{"clock before the image", "clock", func(f *Facts) { f.Clock.Now = noon.Add(-2 * time.Hour) }, status.CheckFailed, "before this image was made"},
		{"clock far after it", "clock", func(f *Facts) { f.Clock.Now = noon.AddDate(31, 0, 0) }, status.CheckFailed, "31 years after"},
		{"no time server answered", "clock", func(f *Facts) { f.Clock.HasServers = true }, status.CheckOK, "no time server answered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := good(t)
			require.True(t, AllPassed(Preflight(f)), "%+v", Preflight(f))
			c.change(&f)
			for _, got := range Preflight(f) {
				if got.Name != c.check {
					assert.Contains(t, []status.CheckState{status.CheckOK, status.CheckSkipped}, got.State, "%s: %s", got.Name, got.Text)
					continue
				}
				assert.Equal(t, c.state, got.State)
				assert.Contains(t, got.Text, c.text)
				if got.State == status.CheckFailed {
					assert.NotEmpty(t, got.Fix, "the way out is not named")
				}
			}
			passes := c.state == status.CheckOK || c.state == status.CheckSkipped
			assert.Equal(t, passes, AllPassed(Preflight(f)))
			p, is := FirstProblem(Preflight(f))
			assert.Equal(t, !passes, is)
			if is {
				assert.Equal(t, c.check, p.Name)
			}
		})
	}
}

func TestNothingAskedIsNotPassed(t *testing.T) { assert.False(t, AllPassed(nil)) }

func TestAFailureComesBeforeAWait(t *testing.T) {
	p, _ := FirstProblem([]status.Check{waitingCheck("a"), failedCheck("fix", "b")})
	assert.Equal(t, "b", p.Text)
}

// fromDisc is of a node that boots from a disc.
func fromDisc(t *testing.T, f Facts) Facts {
	s, problems := site.Load("site.yaml", []byte(`nodes:
  - name: node-1
    bmc: {address: "redfish-virtualmedia://172.22.0.9/redfish/v1/Systems/1", username: admin, password: "change me"}
    links: [{network: provisioning, mac: "52:54:00:12:34:01", address: 172.22.0.201/24}]
`))
	require.Empty(t, problems)
	f.Node = s.WithDefaults().Nodes[0]
	f.Users = map[netip.Addr]Reply{netip.MustParseAddr("172.22.0.201"): {}}
	return f
}

// withoutMACs is of a node of which only the BMC is known.
func withoutMACs(f Facts, address site.BMCAddress) Facts {
	f.Node.BootMAC, f.Node.MACs, f.Node.Links = "", nil, nil
	b := *f.Node.BMC
	b.Address = address
	f.Node.BMC = &b
	return f
}
