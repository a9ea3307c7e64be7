package scenario_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/firewall"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// visitor is a stranger on one network.
type visitor struct {
	*scenario.Stranger
	network   string
	appliance netip.Addr   // the appliance's address there
	made      []netip.Addr // addresses that nobody gave it
	taken     int          // addresses that it says are in use, and answers for
}

// mostTaken is how many addresses a stranger answers for by ARP. One that does so for all is what docs/security.md says
// remains possible on a hostile wire.
const mostTaken = 16

// listener is the address of what listens at the appliance's address on the visitor's network; false: it is for others.
func (v *visitor) listener(name string) (at string, open bool) {
	for _, l := range firewall.Listeners() {
		if l.Name == name && v.mayReach(l) {
			return fmt.Sprintf("%s:%d", v.appliance, l.Port), true
		}
	}
	return "", false
}

// mayReach tells whether a listener is for the visitor's network, too. The owner's is baremetal, as the site names one.
func (v *visitor) mayReach(l firewall.Listener) bool {
	for _, network := range l.Networks {
		if network == v.network || network == "the owner's" && v.network == "baremetal" {
			return true
		}
	}
	return false
}

// strangers are one machine on each network, and how often each thing that they tried was refused.
type strangers struct {
	t       *testing.T
	d       *scenario.Scenario
	targets []*simulator.Server // hosts that are being installed
	right   string              // token of somebody who may use the upload API

	all    []*visitor
	bmc    *poser
	probes atomic.Int64 // of the appliance's that they answered as DHCP servers
	storms atomic.Int64 // requests of them

	mu     sync.Mutex
	counts map[string]int // what was refused, and what was answered beside it

	work sync.WaitGroup
	stop context.CancelFunc
}

// addressesEach is how many addresses each stranger makes up.
const addressesEach = 16

func plugInStrangers(t *testing.T, ctx context.Context, d *scenario.Scenario, bmc, owner *netns.Bridge) *strangers {
	t.Helper()
	s := &strangers{t: t, d: d, counts: map[string]int{}}
	add := func(network string, appliance, made netip.Addr, stranger *scenario.Stranger, err error) *visitor {
		require.NoError(t, err)
		t.Cleanup(stranger.Close)
		v := &visitor{Stranger: stranger, network: network, appliance: appliance}
		v.made, err = stranger.AddAddresses(ctx, made, addressesEach)
		require.NoError(t, err)
		s.all = append(s.all, v)
		return v
	}

	stranger, err := d.NewStranger(ctx)
	add("provisioning", netip.MustParseAddr(scenario.Address), netip.MustParseAddr("172.22.0.200"), stranger, err)
	stranger, err = d.NewStrangerOn(ctx, bmc, bmcStranger, bmcAppliance)
	poses := add("bmc", bmcAppliance, netip.MustParseAddr("10.30.0.200"), stranger, err)
	stranger, err = d.NewStrangerOn(ctx, owner, ownerStranger, ownerAppliance)
	add("baremetal", ownerAppliance, netip.MustParseAddr("10.10.110.200"), stranger, err)

	s.bmc = poseAsBMC(t, poses)
	s.right = strings.TrimSpace(run(t, ctx, d, "kubectl", "-n", "metal3", "create", "token", "default", "--duration", "2h"))
	return s
}

// poser is a BMC that the appliance does not know, and what it was told.
type poser struct {
	connections atomic.Int64

	mu   sync.Mutex
	told strings.Builder
}

func poseAsBMC(t *testing.T, v *visitor) *poser {
	t.Helper()
	p := &poser{}
	listener, err := v.Listen(netip.AddrPortFrom(v.Addr, 443))
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = r.Header.Write(&p.told) // to memory
		_, _ = io.Copy(&p.told, io.LimitReader(r.Body, 1<<16))
		user, password, _ := r.BasicAuth()
		fmt.Fprintf(&p.told, "%s %s %s %s\n", r.Method, r.URL, user, password)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		p.connections.Add(1)
		return nil, nil
	}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return p
}

// begin has all of them try all that they can, until end: each poses as hosts, talks, holds connections from the
// addresses that it made up, and sends packets, all at once.
func (s *strangers) begin(ctx context.Context, targets []*simulator.Server) {
	s.targets = targets
	ctx, s.stop = context.WithCancel(ctx)
	s.t.Cleanup(s.end)
	for _, v := range s.all {
		for _, do := range []func(context.Context, *visitor){s.pose, s.talk, s.hold, s.sendPackets} {
			s.work.Go(func() {
				for ctx.Err() == nil {
					do(ctx, v)
					pause(ctx, time.Second)
				}
			})
		}
		s.work.Go(func() { assert.NoError(s.t, v.AnswerProbes(ctx, &s.probes)) })
	}
}

// end waits until all of them are still.
func (s *strangers) end() {
	s.stop()
	s.work.Wait()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (s *strangers) count(what string, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what] += times
}

// ask sends a request that must be refused, and counts it if it is. What is not answered, or only later, is no answer:
// a stranger has its share alone.
func (s *strangers) ask(ctx context.Context, v *visitor, what string, q scenario.Question) {
	status, said := v.Send(ctx, q)
	if status == 0 || status == http.StatusServiceUnavailable {
		return
	}
	if assert.True(s.t, status >= 300, "%s from %s: %s %s: %d %.200s", what, v.network, q.Method, q.URL, status, said) {
		s.count(what+" from "+v.network, 1)
	}
}

// talk asks whatever listens for what it does not give to strangers.
func (s *strangers) talk(ctx context.Context, v *visitor) {
	if at, open := v.listener("boot"); open {
		s.browse(ctx, v, "http://"+at)
		answered, _ := v.Storm(ctx, at, stormWord, stormRequests)
		s.storms.Add(int64(answered))
	}
	if at, open := v.listener("registry"); open {
		v.Ask(ctx, "GET", "https://"+at+"/v2/_catalog", "")
		s.ask(ctx, v, "writing to the registry", scenario.Question{Method: "POST", URL: "https://" + at + "/v2/library/evil/blobs/uploads/"})
		s.ask(ctx, v, "writing to the registry", scenario.Question{Method: "PUT", URL: "https://" + at + "/v2/library/evil/manifests/latest", Body: "{}"})
	}
	if at, open := v.listener("uploads"); open {
		s.bringTokens(ctx, v, "https://"+at)
	}
	if at, open := v.listener("s3"); open {
		for _, signature := range []string{"", "AWS4-HMAC-SHA256 Credential=AKIAMADEUP/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=" + strings.Repeat("0", 64)} {
			s.ask(ctx, v, "objects of S3", scenario.Question{Method: "GET", URL: "https://" + at + "/", Header: map[string]string{"Authorization": signature}})
		}
	}
	if at, open := v.listener("page"); open {
		made := map[string]string{"Cookie": "session=" + strings.Repeat("0", 64) + "; firstlight=" + strings.Repeat("0", 64)}
		for _, path := range []string{"/", "/events"} {
			s.ask(ctx, v, "the page", scenario.Question{Method: "GET", URL: "https://" + at + path, Header: made})
		}
		v.Ask(ctx, "GET", "https://"+at+"/login", "")
	}
}

// pose speaks in the name of each host: inspections, look-ups, calls, questions about disks with a host key of its own;
// without a token, with one that it made up, and with that of the host's own boot and agent, which it may have heard.
func (s *strangers) pose(ctx context.Context, v *visitor) {
	at, open := v.listener("ironic")
	if !open {
		return
	}

	gate := "https://" + at
	nodes, _ := s.d.Nodes(ctx)
	for _, h := range s.targets {
		uuid := nodes[h.Name].UUID
		if uuid == "" {
			uuid = "00000000-0000-4000-8000-000000000000"
		}
		tokens := map[string]string{"no token": "", "a made-up token": "/b/" + strings.Repeat("A", 43)}
		if stolen := h.BootToken(); stolen != "" {
			tokens["a stolen token"] = "/b/" + stolen
		}
		for what, base := range tokens {
			s.count(what, attack(s.t, ctx, v.Stranger, h, uuid, base))
			status, _ := v.Ask(ctx, "POST", gate+base+"/disk", `{"disk": {"name": "/dev/sda"}, "holds": {"kinds": []},
				"hostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOTicil2/UyYeag2/WrQMJkCnL85l6nMEnZ3of+UBuBn"}`)
			assert.NotEqual(s.t, http.StatusNoContent, status, "a stranger may have a disk written to, with %s", what)
			if _, agent := h.Identity(); agent != "" {
				beat := fmt.Sprintf(`{"callback_url": "https://%s:9999", "agent_token": %q, "agent_version": "10.2.0"}`, v.Addr, agent)
				s.ask(ctx, v, "a stolen token of an agent", scenario.Question{Method: "POST", URL: gate + base + "/v1/heartbeat/" + uuid, Body: beat})
			}
		}
	}
}

// browse asks the boot server for the scripts of others, and for files that are not to be seen.
func (s *strangers) browse(ctx context.Context, v *visitor, boot string) {
	for _, h := range s.targets {
		status, script := v.Ask(ctx, "GET", boot+"/ipxe/"+strings.ReplaceAll(h.MAC, ":", "-"), "")
		if status != 0 && assert.NotContains(s.t, script, "/b/", "another's script") {
			s.count("another's script from "+v.network, 1)
		}
	}
	for _, path := range []string{
		"/%2e%2e/%2e%2e/secret/ironic.credentials", "/../../secret/ironic.credentials", "/var/lib/firstlight/secret/ironic.credentials",
		"/secret/ironic.credentials", "/etc/kubernetes/admin.conf", "/artifacts/alpha/app",
	} {
		s.ask(ctx, v, "files of the appliance", scenario.Question{Method: "GET", URL: boot + path})
	}
	v.Ask(ctx, "GET", boot+"/", "")
}

// A storm is that many requests at once, for paths that begin with a word.
const (
	stormWord     = "storm-of-requests"
	stormRequests = 5000
)

// wrongTokens is how many senders bring one to the upload API at once.
const wrongTokens = 100

// bringTokens has a hundred senders with a wrong token each, from all addresses that the stranger made up, while
// somebody with a right one asks.
func (s *strangers) bringTokens(ctx context.Context, v *visitor, uploads string) {
	senders, left := sync.WaitGroup{}, atomic.Int64{}
	left.Store(wrongTokens)
	for i := range wrongTokens {
		senders.Go(func() {
			defer left.Add(-1)
			word := make([]byte, 16)
			_, _ = rand.Read(word) // never fails
			s.ask(ctx, v, "wrong tokens", scenario.Question{
				Method: "GET",
				URL:    uploads + "/v1/baremetalcluster/alpha/beta/os_images",
				Header: map[string]string{"Authorization": fmt.Sprintf("Bearer eyJhbGciOiJIUzI1NiJ9.%x.x", word)},
				From:   v.made[i%len(v.made)],
			})
		})
	}

	for once := true; ctx.Err() == nil && (once || left.Load() > 0); once = false {
		status, err := s.d.AskUploads(ctx, "/v1/baremetalcluster/alpha/beta/os_images", s.right)
		if ctx.Err() == nil { // 403: it is known who asks, and that is all that the token is for
			s.count("the right token asked", 1)
			if err == nil && status == http.StatusForbidden {
				s.count("the right token answered", 1)
			}
		}
	}
	senders.Wait()
	for _, path := range []string{"/metrics", "/openapi.json", "/v1/baremetalcluster/alpha/beta/os_images/x/content"} {
		s.ask(ctx, v, "uploads without a token", scenario.Question{Method: "GET", URL: uploads + path})
	}
	v.Ask(ctx, "GET", uploads+"/healthz", "")
}

// hold opens as many connections as are taken, in clear without a word and by TLS with one question, at each service,
// and keeps them for a while.
func (s *strangers) hold(ctx context.Context, v *visitor) {
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			_ = conn.Close()
		}
	}()
	add := func(more []net.Conn, _ error) { open = append(open, more...) }

	if at, isOpen := v.listener("boot"); isOpen {
		for _, from := range v.made {
			add(v.ConnectFrom(ctx, from, at, 64))
		}
	}
	for i, name := range []string{"ironic", "registry", "uploads", "s3", "page", "ssh"} {
		if at, isOpen := v.listener(name); isOpen {
			add(v.ConnectFrom(ctx, v.made[2*i], at, 101))
			if name != "ssh" {
				add(v.ConnectTLS(ctx, v.made[2*i+1], at, 64))
			}
		}
	}
	s.count("connections opened from "+v.network, len(open)) // most are closed by the other side before long
	pause(ctx, 15*time.Second)
}

// sendPackets asks for addresses and declines them, in the names of hosts and of machines that do not exist; sends what
// means nothing to each port of UDP; and far too much to Ironic.
func (s *strangers) sendPackets(ctx context.Context, v *visitor) {
	for _, h := range s.targets {
		assert.NoError(s.t, v.Decline(h.MAC, netip.PrefixFrom(v.appliance, 24), v.appliance))
	}
	taken := 0
	if v.taken < mostTaken {
		taken = 4
	}
	v.taken += taken
	offered, err := v.MakeUp(ctx, v.appliance, 101, taken)
	assert.NoError(s.t, err)
	s.count("offers of addresses on "+v.network, offered)

	var ports []uint16
	for _, l := range firewall.Listeners() {
		if l.Protocol == "udp" {
			ports = append(ports, l.Port)
		}
	}
	noise := make([]byte, 1400)
	_, _ = rand.Read(noise) // never fails
	assert.NoError(s.t, v.Shout(v.appliance, ports,
		[]byte{}, []byte{0}, noise[:47], noise[:48], noise[:240], noise,
		[]byte("\x00\x01../../secret/ironic.credentials\x00octet\x00"),
		[]byte("\x00\x01/var/lib/firstlight/secret/ironic.credentials\x00octet\x00blksize\x0065464\x00"),
		append([]byte{0x27}, make([]byte, 47)...), // a time server's question for all that it knows (mode 7)
	))

	if at, open := v.listener("ironic"); open {
		v.Ask(ctx, "POST", "https://"+at+"/v1/continue_inspection", strings.Repeat(" ", 60<<20))
	}
}
