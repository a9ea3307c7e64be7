package firewall

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/netns/netnstest"
)

// wired is one network of the test: the appliance's bridge and address, and a machine on it.
type wired struct {
	bridge    string
	appliance netip.Prefix
	machine   netip.Addr
	pid       int // whose namespace the machine is
}

// topology is an appliance with all its networks in namespaces.
type topology struct {
	t        *testing.T
	pid      int
	networks []*wired
	spoofed  chan netip.Addr // sources of what came to the port of time
}

// newTopology makes the networks, with the forwarding and the route check that the overlay asks for, and answers on
// every port of the list as it is bound on the appliance.
func newTopology(t *testing.T) *topology {
	r := &topology{t: t, pid: netnstest.New(t), spoofed: make(chan netip.Addr, 64), networks: []*wired{
		{provisioning, netip.MustParsePrefix("172.22.0.1/24"), netip.MustParseAddr("172.22.0.66"), netnstest.New(t)},
		{bmc, netip.MustParsePrefix("10.30.0.2/24"), netip.MustParseAddr("10.30.0.101"), netnstest.New(t)},
		{baremetal, netip.MustParsePrefix("10.10.110.20/24"), netip.MustParseAddr("10.10.110.66"), netnstest.New(t)},
		{pods, netip.MustParsePrefix("10.244.0.1/16"), netip.MustParseAddr("10.244.0.5"), netnstest.New(t)},
	}}
	ip := func(pid int, commands ...string) { require.NoError(t, netns.IP(t.Context(), pid, commands...)) }
	ip(r.pid, "link set lo up")
	for _, n := range r.networks {
		ip(r.pid, "link add "+n.bridge+" type bridge", "addr add "+n.appliance.String()+" dev "+n.bridge,
			"link set "+n.bridge+" up",
			fmt.Sprintf("link add p-%s type veth peer name eth0 netns %d", n.bridge[:3], n.pid),
			"link set p-"+n.bridge[:3]+" master "+n.bridge+" up")
		ip(n.pid, "link set lo up", fmt.Sprintf("addr add %s/%d dev eth0", n.machine, n.appliance.Bits()), "link set eth0 up",
			"route add default via "+n.appliance.Addr().String())
	}
	r.listen()
	return r
}

// listen answers in the appliance's namespace on the list's ports, and on port 443 of every machine.
func (r *topology) listen() {
	supplied := []netip.Addr{r.networks[0].appliance.Addr(), r.networks[2].appliance.Addr()}
	places := map[Place][]netip.Addr{
		Everywhere: {netip.IPv4Unspecified()}, OnDevice: {netip.IPv4Unspecified()}, OnProvisioning: supplied[:1],
		WhereSupplied: supplied, OnReached: supplied[1:], OnLoopback: {netip.MustParseAddr("127.0.0.1")},
		OnAllowed: {netip.MustParseAddr("127.0.0.1")}, // the sites here allow metrics nowhere
	}
	for _, l := range Listeners() {
		for _, addr := range places[l.At] {
			r.answer(r.pid, l.Protocol, netip.AddrPortFrom(addr, l.Port))
		}
	}
	for _, n := range r.networks {
		r.answer(n.pid, "tcp", netip.AddrPortFrom(n.machine, 443))
	}
}

// answer takes connections, or sends datagrams back, until the test ends.
func (r *topology) answer(pid int, protocol string, at netip.AddrPort) {
	require.NoError(r.t, netns.Do(netns.PathOf(pid), func() error {
		if protocol == "tcp" {
			l, err := net.Listen("tcp4", at.String())
			if err != nil {
				return err
			}
			r.t.Cleanup(func() { l.Close() })
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					conn.Close()
				}
			}()
			return nil
		}
		conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return err
		}
		r.t.Cleanup(func() { conn.Close() })
		go func() {
			for b := make([]byte, 64); ; {
				n, from, err := conn.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				if string(b[:n]) == "spoofed" {
					r.spoofed <- from.Addr()
				}
				_, _ = conn.WriteToUDPAddrPort(b[:n], from)
			}
		}()
		return nil
	}))
}

// silence is how long nothing may come for it to count as no answer. Whatever answers does so at once where there is
// a processor for it; where there is none, it answers when it is asked again.
const silence = 3 * time.Second

// answers reports whether something answers from there. It is asked from the namespace of a process.
func answers(pid int, protocol string, at netip.AddrPort) bool {
	var conn net.Conn
	err := netns.Do(netns.PathOf(pid), func() (err error) {
		conn, err = (&net.Dialer{Timeout: silence}).Dial(protocol+"4", at.String())
		return err
	})
	if err != nil {
		return false
	}
	defer conn.Close()
	if protocol == "tcp" {
		return true
	}
	_ = conn.SetDeadline(time.Now().Add(silence))
	if _, err := conn.Write([]byte("time")); err != nil {
		return false
	}
	_, err = conn.Read(make([]byte, 8))
	return err == nil
}

// reach is what machines of one network reach.
type reach struct {
	own    []string // ports at the appliance's address on their network
	others []string // ports at its other addresses
	routed []string // machines of other networks
	forged bool     // a packet with the source of another network gets in
}

// rounds is how often everything is asked at most.
const rounds = 8

// ask tries everything from every network, again and again until what answered is all that is expected: an answer is
// proof of a way, silence is none on a busy machine. What must not answer is asked as often.
func (r *topology) ask(isAll func(map[string]*reach) bool) map[string]*reach {
	all := map[string]*reach{}
	for _, from := range r.networks {
		all[from.bridge] = &reach{}
	}
	for range rounds {
		r.askOnce(all)
		if isAll(all) {
			break
		}
	}
	return all
}

// askOnce tries everything from every network at once, and adds what answers.
func (r *topology) askOnce(all map[string]*reach) {
	add := func(list *[]string, name string) {
		if !slices.Contains(*list, name) {
			*list = append(*list, name)
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	try := func(from *wired, protocol string, at netip.AddrPort, found func()) {
		wg.Go(func() {
			if answers(from.pid, protocol, at) {
				mu.Lock()
				defer mu.Unlock()
				found()
			}
		})
	}
	for _, from := range r.networks {
		got := all[from.bridge]
		for _, l := range Listeners() {
			if l.Name == "ironic-api" {
				continue // its port at these addresses is the gate's
			}
			for _, to := range r.networks {
				try(from, l.Protocol, netip.AddrPortFrom(to.appliance.Addr(), l.Port), func() {
					if to != from {
						add(&got.others, l.Name)
					} else {
						add(&got.own, l.Name)
					}
				})
			}
		}
		for _, to := range r.networks {
			if to != from {
				try(from, "tcp", netip.AddrPortFrom(to.machine, 443), func() { add(&got.routed, to.bridge) })
			}
		}
	}
	wg.Wait()
	for _, from := range r.networks[:3] {
		all[from.bridge].forged = all[from.bridge].forged || r.forge(from)
	}
	for _, got := range all {
		for _, list := range [][]string{got.own, got.others, got.routed} {
			slices.Sort(list)
		}
	}
}

// forge sends a datagram with the address of a machine of another network, and reports whether it got in.
func (r *topology) forge(from *wired) bool {
	victim := netip.MustParseAddr("10.30.0.77")
	if from.bridge == bmc {
		victim = netip.MustParseAddr("10.10.110.77")
	}
	require.NoError(r.t, netns.IP(r.t.Context(), from.pid, "addr replace "+victim.String()+"/32 dev lo"))
	require.NoError(r.t, netns.Do(netns.PathOf(from.pid), func() error {
		conn, err := net.DialUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(victim, 0)),
			net.UDPAddrFromAddrPort(netip.AddrPortFrom(from.appliance.Addr(), 67)))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("spoofed"))
		return err
	}))
	select {
	case <-r.spoofed:
		return true
	case <-time.After(silence):
		return false
	}
}

// table is what is reached, for people and for docs/security.md.
func table(all map[string]*reach) string {
	list := func(names []string) string {
		if len(names) == 0 {
			return "nothing"
		}
		return strings.ReplaceAll(strings.Join(names, ", "), pods, "pods")
	}
	var b strings.Builder
	b.WriteString("| from | at the appliance's address there | at its other addresses | machines of | forged source |\n|---|---|---|---|---|\n")
	for _, from := range append(site.Roles(), pods) {
		got := all[from]
		forged := map[bool]string{true: "gets in", false: "dropped"}[got.forged]
		if from == pods {
			forged = "not tried"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", strings.ReplaceAll(from, pods, "pods"), list(got.own), list(got.others), list(got.routed), forged)
	}
	return b.String()
}

// sysctls are those of the overlay that say how packets are routed.
func sysctls(t *testing.T) map[string]string {
	file, err := os.Open("../../../overlays/appliance/usr/lib/sysctl.d/60-firstlight.conf")
	require.NoError(t, err)
	defer file.Close()
	all := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, found := strings.Cut(lines.Text(), "=")
		if name = strings.TrimSpace(name); found && strings.HasPrefix(name, "net.") {
			all[name] = strings.TrimSpace(value)
		}
	}
	require.Equal(t, "1", all["net.ipv4.ip_forward"])
	return all
}

// set sets kernel parameters in the appliance's namespace as systemd-sysctl does: a * is every interface.
func (r *topology) set(params map[string]string) {
	require.NoError(r.t, netns.Do(netns.PathOf(r.pid), func() error {
		for name, value := range params {
			paths, err := filepath.Glob("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
			for _, path := range paths {
				err = errors.Join(err, os.WriteFile(path, []byte(value), 0o644))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

// within runs what starts programs in the appliance's namespace: a child has the namespace of its thread.
func (r *topology) within(do func() error) error { return netns.Do(netns.PathOf(r.pid), do) }

func siteOf(t *testing.T, text string) *site.Site {
	s, problems := site.Load("site.yaml", []byte(text))
	require.NoError(t, problems.Err())
	return s.WithDefaults()
}

const allNetworks = `
networks:
  provisioning: {cidr: 172.22.0.0/24, address: 172.22.0.1}
  bmc: {cidr: 10.30.0.0/24, address: 10.30.0.2%s}
  baremetal: {cidr: 10.10.110.0/24, address: 10.10.110.20%s}
`

// TestNetworksEndAtTheAppliance asks every port of the appliance and one machine of each network from each network:
// without the packet filter, with it, and with what a site may add.
func TestNetworksEndAtTheAppliance(t *testing.T) {
	needsNamespaces(t)
	r := newTopology(t)
	params := sysctls(t)
	before := maps.Clone(params)
	maps.DeleteFunc(before, func(name, _ string) bool { return strings.HasSuffix(name, "rp_filter") })
	r.set(before)
	page, err := os.ReadFile("../../../docs/security.md")
	require.NoError(t, err)
	quotes := func(all map[string]*reach) bool { return strings.Contains(string(page), table(all)) }
	open := r.ask(quotes)
	t.Logf("without the packet filter:\n%s", table(open))
	assert.Equal(t, []string{bmc, pods, provisioning}, open[baremetal].routed, "the test cannot see what is forwarded")

	var s *site.Site
	f := &Firewall{Site: func() *site.Site { return s }, Root: t.TempDir()}
	load := func(text string, isAll func(map[string]*reach) bool) map[string]*reach {
		s = siteOf(t, text)
		require.NoError(t, r.within(func() error { return f.Load(t.Context(), func(string) {}) }))
		require.NoError(t, r.within(func() error { return f.CheckLoaded(t.Context()) }))
		return r.ask(isAll)
	}
	r.set(params)
	shut := load(fmt.Sprintf(allNetworks, "", ""), quotes)
	t.Logf("with it:\n%s", table(shut))
	expected := map[string]*reach{
		provisioning: {own: []string{"boot", "dhcp", "ironic", "pxe", "registry", "ssh", "tftp", "time", "uploads"}},
		bmc:          {own: []string{"dhcp"}},
		baremetal:    {own: []string{"boot", "dhcp", "page", "registry", "ssh", "time", "uploads"}},
		pods:         open[pods],
	}
	assert.Equal(t, expected, shut)
	assert.Equal(t, []string{baremetal, bmc, provisioning}, shut[pods].routed, "pods do not get out")
	assert.Contains(t, string(page), table(open), "docs/security.md quotes another table for before")
	assert.Contains(t, string(page), table(shut), "docs/security.md quotes another table")

	added := load(fmt.Sprintf(allNetworks, ", allow: [ssh]", ", allow: [kubernetes], forward: [bmc]"), func(all map[string]*reach) bool {
		return len(all[bmc].own) >= 2 && len(all[baremetal].others) >= 1 && len(all[baremetal].routed) >= 1
	})
	assert.Equal(t, []string{"dhcp", "ssh"}, added[bmc].own)
	assert.Equal(t, []string{"kubernetes"}, added[baremetal].others, "at the address on provisioning")
	assert.Equal(t, []string{bmc}, added[baremetal].routed)
	assert.Empty(t, added[bmc].routed, "what one network may, the other does not")
	assert.Equal(t, []string{"ssh from bmc", "kubernetes from baremetal", "packets from baremetal to bmc"}, f.Status().Allowed)

	merged := load("networks: {bmc: {cidr: 10.30.0.0/24, address: 10.30.0.2}}", func(all map[string]*reach) bool {
		return len(all[bmc].own) >= 3
	})
	assert.Equal(t, []string{"dhcp", "ssh", "uploads"}, merged[bmc].own, "the owner has no other way in")
	assert.Empty(t, merged[bmc].others)
}

func needsNamespaces(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") {
		t.Skip("needs root and network namespaces: set FIRSTLIGHT_TEST=ns")
	}
}
