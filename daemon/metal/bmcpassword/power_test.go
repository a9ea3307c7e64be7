package bmcpassword

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	lab "firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/simulator"
)

// power is that of the machine on which the daemon runs. It fails at one of the moments that are counted: what was
// written to DATA, or was on the wire, stays; nothing else is done.
type power struct {
	mu      sync.Mutex
	passed  int // moments
	failsAt int // 0: never
	off     bool
	cut     context.CancelFunc // ends the daemon
}

// connect says what ends when the power fails; false: there is none.
func (p *power) connect(cut context.CancelFunc) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	return !p.off
}

// restore has power from now on, until it fails at a moment; 0: never.
func (p *power) restore(failsAt int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed, p.failsAt, p.off = 0, failsAt, false
}

func (p *power) isOn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.off
}

// pass counts a moment, and reports whether the power is still on.
func (p *power) pass() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.passed++; p.passed == p.failsAt {
		p.off = true
		if p.cut != nil {
			p.cut()
		}
	}
	return !p.off
}

// spend is pass in the daemon, which ends here without power.
func (p *power) spend() {
	if !p.pass() {
		runtime.Goexit()
	}
}

// written are the accounts on DATA, with the moments before, in and after each write.
type written struct {
	*rack
	*vault.BMCAccounts
}

func (w written) Save(a vault.BMCAccount) error {
	w.power.spend()
	if !w.power.pass() {
		w.tear()
		runtime.Goexit()
	}
	err := w.BMCAccounts.Save(a)
	w.power.spend()
	return err
}

// tear leaves half of a new file next to each, as package atomicfile does when the power fails before the rename.
func (w written) tear() {
	files, err := filepath.Glob(filepath.Join(w.Dir, "*.json"))
	assert.NoError(w.t, err)
	for _, file := range files {
		dir, name := filepath.Split(file)
		assert.NoError(w.t, os.WriteFile(dir+"."+name+".new", []byte(`{"bmc": `), 0o600))
	}
}

// asked is the BMCs, with the moments before and after each conversation.
type asked struct {
	*rack
	bmc.Client
}

func (a asked) Login(ctx context.Context, b site.BMC) bmc.Answer {
	a.power.spend()
	answer := a.count(b, a.Client.Login(ctx, b))
	a.power.spend()
	return answer
}

func (a asked) ChangePassword(ctx context.Context, b site.BMC, next site.Secret) bmc.Answer {
	a.power.spend()
	answer := a.count(b, a.Client.ChangePassword(ctx, b, next))
	a.power.spend()
	return answer
}

// count counts the logins that are refused by IPMI, where whoever logs in learns it first (IPMI 2.0, 13.22).
func (a asked) count(b site.BMC, answer bmc.Answer) bmc.Answer {
	if b.Address.Scheme() == "ipmi" && answer.Verdict == bmc.Refused {
		a.addRefusal()
	}
	return answer
}

func (r *rack) addRefusal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = append(r.refused, r.now)
}

// mostRefused is how many logins were refused in the worst hour.
func (r *rack) mostRefused() (most int) {
	for i, first := range r.refused {
		n := 0
		for _, at := range r.refused[i:] {
			if at.Sub(first) < time.Hour {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// addRedfish names a simulated server, between whose BMC and the appliance each request and each answer is a moment.
func (r *rack) addRedfish() *simulator.Server {
	f, err := simulator.Start(simulator.Config{Hosts: 1, PlainBMC: true})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { assert.NoError(r.t, f.Close()) })
	server := f.Hosts()[0]
	endpoint, path, _ := strings.Cut(strings.TrimPrefix(server.BMC(), "redfish+http://"), "/")

	wire := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: endpoint})
	wire.ErrorLog = log.New(io.Discard, "", 0)
	wire.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	wire.ModifyResponse = func(answer *http.Response) error {
		if answer.StatusCode == http.StatusUnauthorized {
			r.addRefusal()
		}
		if !r.power.pass() {
			return errors.New("there is nobody to answer")
		}
		return nil
	}
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !r.power.pass() {
			panic(http.ErrAbortHandler)
		}
		wire.ServeHTTP(w, request)
	}))
	front.Config.ErrorLog = wire.ErrorLog
	r.t.Cleanup(front.Close)
	r.addNode(server.Name, strings.Replace(front.URL, "https://", "redfish://", 1)+"/"+path)
	return server
}

// addIPMI names a BMC of OpenIPMI, between which and the appliance the datagrams are moments.
func (r *rack) addIPMI() {
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(r.t, err)
	b, err := lab.Start(lab.Config{
		Name:     "node1",
		Dir:      r.t.TempDir(),
		User:     "admin",
		Password: usual,
		Front:    &datagrams{PacketConn: socket, power: &r.power},
	}, lamp{})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { assert.NoError(r.t, b.Close()) })
	r.addNode("node1", "ipmi://"+socket.LocalAddr().String())

	var answer bmc.Answer
	deadline := time.Now().Add(5 * time.Minute)
	for answer.Verdict != bmc.OK && time.Now().Before(deadline) { // it starts
		answer = r.client().Login(r.t.Context(), *r.site.Nodes[0].BMC)
	}
	require.Equal(r.t, bmc.OK, answer.Verdict, answer.Text)
}

// datagrams is a BMC's socket that hears and says nothing while the power of the appliance is off. A datagram that is
// as long as the one before it in its direction is no moment: the questions for the names of 63 users, and the answers,
// are one.
type datagrams struct {
	net.PacketConn
	power       *power
	heard, said int // bytes of the last one; each is of one goroutine
}

func (d *datagrams) ReadFrom(p []byte) (n int, from net.Addr, err error) {
	for {
		n, from, err = d.PacketConn.ReadFrom(p)
		if err != nil || d.isPassed(&d.heard, n) {
			return n, from, err
		}
	}
}

func (d *datagrams) WriteTo(p []byte, to net.Addr) (int, error) {
	if !d.isPassed(&d.said, len(p)) {
		return len(p), nil
	}
	return d.PacketConn.WriteTo(p, to)
}

// isPassed reports whether a datagram of some length gets through.
func (d *datagrams) isPassed(last *int, length int) bool {
	isNew := *last != length
	*last = length
	if isNew {
		return d.power.pass()
	}
	return d.power.isOn()
}

// lamp is a machine that does nothing.
type lamp struct{}

func (lamp) IsOn() bool            { return true }
func (lamp) SwitchOn(string) error { return nil }
func (lamp) SwitchOff() error      { return nil }
func (lamp) ShutDown() error       { return nil }
