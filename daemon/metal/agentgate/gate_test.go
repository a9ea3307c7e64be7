package agentgate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
)

const patience = time.Minute

// fixture is a gate before an Ironic that remembers what it was asked. Machines are at 172.22.0.N, with the MAC
// 52:54:00:00:00:N; hosts are node1 and node2, at 11 and 12.
type fixture struct {
	*Gate
	addr  string
	roots *x509.CertPool
	cert  []byte // DER
	log   *bytes.Buffer

	mu     sync.Mutex
	asked  []string
	hosts  map[string]*Host // by MAC
	bmc    string           // of a host without a MAC
	seen   []string         // unknown machines whose inventory was shown
	events []string         // host and sentence
	inside netip.Addr
}

// far shows a client at 127.0.0.N as the machine 172.22.0.N: what comes from this machine has no limits.
type far struct{ net.Listener }

func (l far) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return farConn{conn}, nil
}

type farConn struct{ net.Conn }

func farAddr(octet byte) netip.Addr { return netip.AddrFrom4([4]byte{172, 22, 0, octet}) }

func (c farConn) RemoteAddr() net.Addr {
	from := c.Conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(farAddr(from.Addr().As4()[3]), from.Port()))
}

func (farConn) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("172.22.0.1:6385"))
}

func macOf(octet byte) string { return net.HardwareAddr{0x52, 0x54, 0, 0, 0, octet}.String() }

func (b *fixture) MachineAt(addr netip.Addr) (pxe.Machine, bool) {
	mac, _ := net.ParseMAC(macOf(addr.As4()[3]))
	return pxe.Machine{MAC: mac, Addr: addr}, addr.As4()[3] != 99
}

func newFixture(t *testing.T) *fixture {
	b := &fixture{log: &bytes.Buffer{}, hosts: map[string]*Host{
		macOf(11): {Name: "node1", UUID: uuid},
		macOf(12): {Name: "node2", UUID: other},
	}}
	ironic := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.asked = append(b.asked, fmt.Sprintf("%s %s %s %d", r.Method, r.URL, r.Header.Get(versionHeader), len(body)))
		b.mu.Unlock()
		fmt.Fprint(w, `{"ironic": "answers"}`)
	}))
	t.Cleanup(ironic.Close)
	b.Gate = &Gate{
		Log:    slog.New(slog.NewTextHandler(b.log, nil)),
		Boots:  newBoots(filepath.Join(t.TempDir(), "boots.json")),
		Ironic: func() (string, *http.Client, error) { return ironic.URL, ironic.Client(), nil },
		Host:   func(mac string) (*Host, bool) { return b.hosts[mac], true },
		Owner: func(mac string) string {
			if h := b.hosts[mac]; h != nil {
				return h.Name
			}
			return ""
		},
		NodeOwner: func(node string) string { return map[string]string{uuid: "node1", other: "node2"}[node] },
		Refused: func(host, sentence string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, host+": "+sentence)
		},
		WithoutMAC: func(bmc string) bool { return bmc == b.bmc && bmc != "" },
		Inspected: func(mac string, said map[string]any) {
			assert.Contains(t, said, "inventory")
			b.mu.Lock()
			defer b.mu.Unlock()
			b.seen = append(b.seen, mac)
		},
		Machines: b,
		IsInside: func(addr netip.Addr) bool { return addr == b.inside },
	}
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	b.addr, b.roots = inner.Addr().String(), x509.NewCertPool()
	b.roots.AddCert(ironic.Certificate())
	b.cert = ironic.Certificate().Raw
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- b.Serve(ctx, func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &ironic.TLS.Certificates[0], nil
		}, far{inner})
	}()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return b
}

// boot gives a machine its script and returns the path that its agent begins with.
func (b *fixture) boot(t *testing.T, octet byte) string {
	machine, _ := b.MachineAt(farAddr(octet))
	token, err := b.Mint(machine, pxe.Boot{})
	require.NoError(t, err)
	return "/b/" + token.Reveal()
}

func (b *fixture) dialer(octet byte) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, octet)}}
}

// ask speaks as the machine with that last octet.
func (b *fixture) ask(t *testing.T, octet byte, method, path string, body io.Reader) (int, string) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       b.dialer(octet).DialContext,
		TLSClientConfig:   &tls.Config{RootCAs: b.roots, ServerName: "example.com"},
	}}
	request, err := http.NewRequestWithContext(t.Context(), method, "https://"+b.addr+path, body)
	require.NoError(t, err)
	request.Header.Set(versionHeader, "1.96")
	answer, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text)
}

func (b *fixture) requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

func inventoryOf(macs ...string) io.Reader {
	var nics []map[string]string
	for _, mac := range macs {
		nics = append(nics, map[string]string{"mac_address": mac})
	}
	text, _ := json.Marshal(map[string]any{"inventory": map[string]any{"interfaces": nics, "bmc_address": "10.0.0.9"}})
	return bytes.NewReader(text)
}

func beatFrom(octet byte) io.Reader {
	return strings.NewReader(fmt.Sprintf(`{"callback_url": "https://172.22.0.%d:9999", "agent_token": "t"}`, octet))
}

// TestAnAgentGetsThrough with all that it asks for, and Ironic is asked for this node alone.
func TestAnAgentGetsThrough(t *testing.T) {
	b := newFixture(t)
	base := b.boot(t, 11)
	for _, c := range []struct {
		method, path string
		body         io.Reader
	}{
		{"GET", "/", nil},
		{"POST", "/v1/continue_inspection", inventoryOf(macOf(11), macOf(77))},
		{"GET", "/v1/lookup?addresses=" + macOf(12) + "," + macOf(11) + "&node_uuid=" + other, nil},
		{"POST", "/v1/heartbeat/" + uuid, beatFrom(11)},
	} {
		code, said := b.ask(t, 11, c.method, base+c.path, c.body)
		assert.Equal(t, 200, code, "%s %s: %s", c.method, c.path, said)
	}
	asked := b.requests()
	require.Len(t, asked, 4)
	assert.Equal(t, "GET / 1.96 0", asked[0])
	assert.Regexp(t, `^POST /v1/continue_inspection  \d+$`, asked[1], "with the newest version the answer has a token in it")
	assert.Equal(t, "GET /v1/lookup?addresses=52%3A54%3A00%3A00%3A00%3A0b&node_uuid="+uuid+" 1.96 0", asked[2])
	assert.Regexp(t, `^POST /v1/heartbeat/`+uuid+` 1.96 \d+$`, asked[3])
	assert.Empty(t, b.log.String())
}

// TestAStrangerIsRefused whatever it says: Ironic is asked nothing, each refusal is told once, and the node it concerns
// says why.
func TestAStrangerIsRefused(t *testing.T) {
	b := newFixture(t)
	base := b.boot(t, 11)
	for range 3 {
		for _, path := range []string{"/v1/continue_inspection", "/b/" + strings.Repeat("A", 43) + "/v1/continue_inspection", base + "/v1/continue_inspection", "/b//v1/continue_inspection"} {
			code, said := b.ask(t, 66, "POST", path, inventoryOf(macOf(11)))
			assert.Equal(t, 403, code, said)
		}
		for _, path := range []string{"/", "/v1", "/v1/nodes", "/v1/lookup?addresses=" + macOf(11), base + "/v1/lookup?addresses=" + macOf(11)} {
			code, said := b.ask(t, 66, "GET", path, nil)
			assert.Equal(t, 403, code, said)
		}
		code, _ := b.ask(t, 66, "POST", base+"/v1/heartbeat/"+uuid, beatFrom(66))
		assert.Equal(t, 403, code)
		code, _ = b.ask(t, 11, "POST", base+"/v1/heartbeat/"+uuid, beatFrom(66))
		assert.Equal(t, 403, code)
		code, _ = b.ask(t, 11, "GET", base+"/v1/nodes", nil)
		assert.Equal(t, 404, code)
	}
	assert.Empty(t, b.requests())
	lines := strings.Count(b.log.String(), "agent refused")
	assert.Equal(t, 5, lines, b.log.String())
	assert.NotContains(t, b.log.String(), strings.TrimPrefix(base, "/b/"))
	sentence, at := b.LastRefusal("node1")
	assert.NotEmpty(t, sentence)
	assert.WithinDuration(t, time.Now(), at, patience)

	code, _ := b.ask(t, 11, "GET", base+"/", nil)
	require.Equal(t, 200, code)
	sentence, _ = b.LastRefusal("node1")
	assert.Empty(t, sentence, "its agent was let through since")
}

// TestAHostSaysWhoCallsInItsName: by a MAC or a node that is not the caller's, without a token or with its own.
func TestAHostSaysWhoCallsInItsName(t *testing.T) {
	for name, c := range map[string]struct {
		octet        byte
		method, path string
		hasToken     bool
		host         string // that hears of it; "": none
	}{
		"a lookup by its MAC":             {66, "GET", "/v1/lookup?addresses=" + macOf(67) + "," + macOf(11), false, "node1"},
		"a lookup by its node":            {66, "GET", "/v1/lookup?node_uuid=" + other, false, "node2"},
		"an inventory for its node":       {66, "POST", "/v1/continue_inspection?node_uuid=" + uuid, false, "node1"},
		"a heartbeat":                     {66, "POST", "/v1/heartbeat/" + uuid, false, "node1"},
		"a heartbeat with another token":  {66, "POST", "/v1/heartbeat/" + uuid, true, "node1"},
		"a heartbeat of another host":     {12, "POST", "/v1/heartbeat/" + uuid, true, "node1"},
		"its MAC behind more than it has": {66, "GET", "/v1/lookup?addresses=" + strings.Repeat(macOf(67)+",", maxNamed) + macOf(11), false, ""},
		"a node that is no host's":        {66, "POST", "/v1/heartbeat/5a0b9f3e-0000-4000-8000-000000000003", false, ""},
		"nothing":                         {66, "POST", "/v1/continue_inspection", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t)
			path := c.path
			if c.hasToken {
				path = b.boot(t, c.octet) + path
			}
			for range 2 {
				code, _ := b.ask(t, c.octet, c.method, path, beatFrom(c.octet))
				assert.GreaterOrEqual(t, code, 400)
			}
			for _, host := range []string{"node1", "node2"} {
				sentence, at := b.LastClaim(host)
				if host != c.host {
					assert.Empty(t, sentence, host)
					continue
				}
				assert.Contains(t, sentence, fmt.Sprintf("172.22.0.%d called in its name and was refused: ", c.octet))
				assert.WithinDuration(t, time.Now(), at, patience)
				assert.Equal(t, 1, strings.Count(strings.Join(b.events, "\n"), host+": "+sentence), "once")
				own, _ := b.LastRefusal(host)
				assert.Empty(t, own, "its own agent was not refused")
			}
			if c.host == "" {
				assert.Empty(t, b.events)
			}
		})
	}
}

// TestAnUnknownMachinePostsItsInventoryAlone, and Ironic reads it only where a host without a MAC has its BMC.
func TestAnUnknownMachinePostsItsInventoryAlone(t *testing.T) {
	b := newFixture(t)
	base := b.boot(t, 40)
	code, _ := b.ask(t, 40, "POST", base+"/v1/continue_inspection", inventoryOf(macOf(40)))
	assert.Equal(t, 404, code)
	code, _ = b.ask(t, 40, "GET", base+"/v1/lookup?addresses="+macOf(40), nil)
	assert.Equal(t, 404, code)
	b.bmc = "10.0.0.9"
	code, _ = b.ask(t, 40, "POST", base+"/v1/continue_inspection", inventoryOf(macOf(40), macOf(11)))
	assert.Equal(t, 403, code, "it names a NIC of a host")
	require.Empty(t, b.requests())
	assert.Equal(t, []string{macOf(40)}, b.seen, "what no host stands for is shown, and nothing that lies")
	code, _ = b.ask(t, 40, "POST", base+"/v1/continue_inspection", inventoryOf(macOf(40)))
	assert.Equal(t, 200, code)
	require.Len(t, b.requests(), 1)
}

// TestWhatIsTooLargeIsNotRead: a stranger's body not at all, a node's to its limit.
func TestWhatIsTooLargeIsNotRead(t *testing.T) {
	b := newFixture(t)
	base := b.boot(t, 11)
	huge := bytes.Repeat([]byte(" "), 60<<20)
	b.ask(t, 66, "POST", "/v1/continue_inspection", bytes.NewReader(huge))
	code, _ := b.ask(t, 11, "GET", base+"/", nil)
	assert.Equal(t, 200, code)
	b.ask(t, 11, "POST", base+"/v1/continue_inspection", bytes.NewReader(huge))
	b.ask(t, 11, "POST", base+"/v1/continue_inspection", io.MultiReader(bytes.NewReader(huge))) // of unknown length
	// A refused body may end the connection before its sender has read the answer.
	assert.Eventually(t, func() bool {
		code, _ = b.ask(t, 11, "POST", base+"/v1/heartbeat/"+uuid, bytes.NewReader(huge[:maxHeartbeat+1]))
		return code != 0
	}, time.Minute, 10*time.Millisecond)
	assert.Equal(t, 413, code)
	assert.Equal(t, []string{"GET / 1.96 0"}, b.requests())
}

// TestSilentConnectionsShutNobodyOut: of one address, and of as many addresses as there are.
func TestSilentConnectionsShutNobodyOut(t *testing.T) {
	b := newFixture(t)
	base := b.boot(t, 11)
	open := func(octet byte) net.Conn {
		conn, err := b.dialer(octet).Dial("tcp4", b.addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	served := func() {
		code, said := b.ask(t, 11, "GET", base+"/", nil)
		assert.Equal(t, 200, code, said)
	}
	var first []net.Conn
	for range 101 {
		first = append(first, open(66))
	}
	served()

	held := 0
	for _, conn := range first {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			held++
		}
	}
	assert.LessOrEqual(t, held, maxPerAddress, "one machine holds more than its share")
	for i := range maxConnections {
		open(byte(100 + i%150))
	}
	served()
}

// TestProgramsOfTheApplianceReachAllOfIronic, which asks them for its password.
func TestProgramsOfTheApplianceReachAllOfIronic(t *testing.T) {
	b := newFixture(t)
	b.inside = farAddr(5)
	code, _ := b.ask(t, 5, "GET", "/v1/nodes?fields=uuid", nil)
	assert.Equal(t, 200, code)
	assert.Equal(t, []string{"GET /v1/nodes?fields=uuid 1.96 0"}, b.requests())
}

// TestAPodIsNoAgent: what Ironic answers without a password is for agents, which no pod is. A header proves nothing
// where no one asks for it.
func TestAPodIsNoAgent(t *testing.T) {
	b := newFixture(t)
	b.inside = farAddr(5)
	for _, path := range []string{
		"/v1/lookup?addresses=" + macOf(11),
		"/v1/lookup/?node_uuid=" + uuid,
		"/v1/lookup.json?addresses=" + macOf(11),
		"/v1/lookup.json/?addresses=" + macOf(11),
		"/v1/lookup%2Ejson?addresses=" + macOf(11),
		"/v1/heartbeat/" + uuid,
		"/v1/heartbeat/" + uuid + ".xml",
		"/v1/heartbeat",
		"/v1/continue_inspection",
		"/v1/continue_inspection/",
	} {
		for _, method := range []string{"GET", "POST"} {
			code, said := b.ask(t, 5, method, path, beatFrom(5))
			assert.Equal(t, 403, code, "%s %s: %s", method, path, said)
		}
	}
	assert.Empty(t, b.requests())
	sentence, _ := b.LastClaim("node1")
	assert.Contains(t, sentence, "172.22.0.5 called in its name")
}

// TestNothingIsMintedBeforeTheHostsAreKnown: a node would be taken for an unknown machine.
func TestNothingIsMintedBeforeTheHostsAreKnown(t *testing.T) {
	g := &Gate{Boots: newBoots(filepath.Join(t.TempDir(), "b")), Host: func(string) (*Host, bool) { return nil, false }}
	_, err := g.Mint(machine(1), pxe.Boot{})
	assert.ErrorContains(t, err, "does not know its hosts yet")
}

// TestOneMachineDoesNotTakeTheRoomOfAll: it announces inventories and does not send them.
func TestOneMachineDoesNotTakeTheRoomOfAll(t *testing.T) {
	b := newFixture(t)
	slow := b.boot(t, 12)
	for range 8 {
		conn, err := tls.DialWithDialer(b.dialer(12), "tcp4", b.addr, &tls.Config{RootCAs: b.roots, ServerName: "example.com"})
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST %s/v1/continue_inspection HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", slow, maxInventory)
		require.NoError(t, err)
	}
	base := b.boot(t, 11)
	code, said := b.ask(t, 11, "POST", base+"/v1/continue_inspection", inventoryOf(macOf(11)))
	assert.Equal(t, 200, code, said)
}
