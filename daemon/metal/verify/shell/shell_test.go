package shell

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/net/dns/dnsmessage"
)

// said is what a node with a bond, a VLAN on it and a second NIC without cable says.
const said = `time 1772625600.500000000
host node-1
nic bond0 52:54:00:00:00:01 1 1500 - -
nic bond0.110 52:54:00:00:00:01 1 1500 - -
nic eno1 52:54:00:00:00:01 1 1500 bond0 52:54:00:00:00:01
nic eno2 52:54:00:00:00:01 0 1500 bond0 52:54:00:00:00:02
nic lo 00:00:00:00:00:00 1 65536 - -
vlan bond0.110 110 bond0
addr lo 127.0.0.1/8
addr bond0.110 10.10.110.21/24
addr bond0.110 fe80::5054:ff:fe00:1/64
addr gone 10.0.0.1/24
addr bond0 rubbish
route 10.10.110.1 bond0.110
route - ppp0
resolver 127.0.0.53
resolver 10.10.110.2
resolver 10.10.110.2
router 10.10.110.1 echo
router 10.10.110.9 neighbour
router 10.10.110.8
dns 10.10.110.2 0007810000000000
dns 10.10.110.3
something new
end
`

func TestParse(t *testing.T) {
	addr := netip.MustParseAddr
	r, err := parse(said)
	require.NoError(t, err)
	assert.Equal(t, "node-1", r.Hostname)
	assert.True(t, r.Time.Equal(time.Unix(1772625600, 500000000)))
	vlan, found := r.NIC("bond0.110")
	require.True(t, found)
	assert.Equal(t, NIC{Name: "bond0.110", MAC: "52:54:00:00:00:01", Up: true, MTU: 1500, VLAN: 110, Parent: "bond0",
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.10.110.21/24"), netip.MustParsePrefix("fe80::5054:ff:fe00:1/64")}}, vlan)
	member, _ := r.NIC("eno2")
	assert.Equal(t, NIC{Name: "eno2", MAC: "52:54:00:00:00:02", MTU: 1500, Master: "bond0"}, member, "a NIC in a bond is known by its own MAC")
	assert.Equal(t, []Route{{addr("10.10.110.1"), "bond0.110"}, {netip.Addr{}, "ppp0"}}, r.Defaults)
	assert.Equal(t, []netip.Addr{addr("10.10.110.2")}, r.Resolvers)
	assert.Equal(t, map[netip.Addr]string{addr("10.10.110.1"): "echo", addr("10.10.110.9"): "neighbour", addr("10.10.110.8"): ""}, r.Routers)
	assert.Equal(t, map[netip.Addr][]byte{addr("10.10.110.2"): {0, 7, 0x81, 0, 0, 0, 0, 0}, addr("10.10.110.3"): nil}, r.DNS)
	_, err = parse(strings.TrimSuffix(said, "end\n"))
	assert.ErrorContains(t, err, "truncated")
}

func FuzzParse(f *testing.F) {
	f.Add(said)
	f.Add("time .\nnic a b c d e f\naddr a\nend")
	f.Fuzz(func(t *testing.T, text string) { _, _ = parse(text) })
}

func key(t *testing.T) ssh.Signer {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return signer
}

// machine is an SSH server that runs what it is told on this very machine, and lets one key in.
func machine(t *testing.T, host ssh.Signer, allowed ssh.PublicKey) netip.AddrPort {
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if string(k.Marshal()) != string(allowed.Marshal()) {
			return nil, assert.AnError
		}
		return nil, nil
	}}
	config.AddHostKey(host)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, config)
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

func serve(c net.Conn, config *ssh.ServerConfig) {
	_, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for channel := range channels {
		if channel.ChannelType() != "session" {
			channel.Reject(ssh.UnknownChannelType, "only sessions")
			continue
		}
		session, requests, err := channel.Accept()
		if err != nil {
			return
		}
		go func() {
			for r := range requests {
				if r.Type != "exec" {
					continue
				}
				var line struct{ Text string }
				_ = ssh.Unmarshal(r.Payload, &line)
				r.Reply(true, nil)
				cmd := exec.Command("bash", "-c", line.Text)
				cmd.Stdin, cmd.Stdout, cmd.Stderr = session, session, io.Discard
				code := uint32(0)
				if cmd.Run() != nil {
					code = 1
				}
				session.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{code}))
				session.Close()
			}
		}()
	}
}

func target(t *testing.T, at netip.AddrPort, access ssh.Signer, host ssh.PublicKey) Target {
	return Target{Name: "node-1", Addresses: []netip.Addr{at.Addr()}, Port: at.Port(), User: "firstlight", Key: access, HostKey: host}
}

// TestScriptOnThisMachine runs the script as it runs on a node: what it says must be what
// this machine's own interfaces are.
func TestScriptOnThisMachine(t *testing.T) {
	for _, program := range []string{"ip", "bash", "od"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("a node has ", program, ", this machine has not: ", err)
		}
	}
	access, host := key(t), key(t)
	a := Ask(t.Context(), target(t, machine(t, host, access.PublicKey()), access, host.PublicKey()))
	require.Equal(t, Reached, a.Verdict, a.Text)
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range interfaces {
		n, found := a.Report.NIC(i.Name)
		require.True(t, found, "%s is missing in %+v", i.Name, a.Report.NICs)
		assert.Equal(t, i.MTU, n.MTU)
		if len(i.HardwareAddr) == 6 && n.Master == "" {
			assert.Equal(t, i.HardwareAddr.String(), n.MAC)
		}
		addresses, err := i.Addrs()
		require.NoError(t, err)
		for _, p := range addresses {
			assert.Contains(t, n.Addresses, netip.MustParsePrefix(p.String()))
		}
	}
	assert.Less(t, a.Report.Time.Sub(a.AskedAt).Abs(), a.Doubt+time.Second, "one clock, and the difference is %s", a.Report.Time.Sub(a.AskedAt))
}

func TestQuestionGoesFromTheNode(t *testing.T) {
	// The script asks port 53: an address of its own, so that nobody else's is used.
	const at = "127.77.0.53"
	l, err := net.ListenPacket("udp4", at+":53")
	if err != nil {
		t.Skip("needs the right to listen on port 53: ", err)
	}
	defer l.Close()
	go func() {
		for buf := make([]byte, 1500); ; {
			n, from, err := l.ReadFrom(buf)
			if err != nil {
				return
			}
			var p dnsmessage.Parser
			h, _ := p.Start(buf[:n])
			m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RCode: dnsmessage.RCodeNameError}}
			packet, _ := m.Pack()
			l.WriteTo(packet, from)
		}
	}()
	access, host := key(t), key(t)
	to := target(t, machine(t, host, access.PublicKey()), access, host.PublicKey())
	answering, silent := netip.MustParseAddr(at), netip.MustParseAddr("127.77.0.54")
	to.Resolvers, to.Routers = []netip.Addr{answering, silent}, []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	a := Ask(t.Context(), to)
	require.Equal(t, Reached, a.Verdict, a.Text)
	assert.NoError(t, a.Question.CheckAnswer(a.Report.DNS[answering]))
	assert.Nil(t, a.Report.DNS[silent])
	if _, err := exec.LookPath("ping"); err == nil {
		assert.Equal(t, "echo", a.Report.Routers[netip.MustParseAddr("127.0.0.1")])
	}
}

func TestVerdicts(t *testing.T) {
	access, host := key(t), key(t)
	at := machine(t, host, access.PublicKey())
	good := target(t, at, access, host.PublicKey())

	stranger := good
	stranger.HostKey = key(t).PublicKey()
	locked := good
	locked.Key = key(t)
	nowhere := good
	nowhere.Addresses = nil
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	silent := good
	silent.Port = netip.MustParseAddrPort(closed.Addr().String()).Port()
	hello, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer hello.Close()
	go func() {
		for {
			c, err := hello.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("hello\r\n"))
			c.Close()
		}
	}()
	web := good
	web.Port = netip.MustParseAddrPort(hello.Addr().String()).Port()
	second := good
	second.Addresses = append([]netip.Addr{netip.MustParseAddr("127.77.0.9")}, slices.Clone(good.Addresses)...)

	for name, c := range map[string]struct {
		target  Target
		verdict Verdict
		text    string
	}{
		"another machine":      {stranger, OtherMachine, "not the one that was made for node-1"},
		"key not let in":       {locked, Locked, "does not let the appliance's key in as user firstlight"},
		"no address known":     {nowhere, Silent, "no address"},
		"nobody there":         {silent, Silent, "nothing answers SSH at 127.0.0.1"},
		"no SSH there":         {web, Silent, "does not answer as SSH does"},
		"at its other address": {second, Reached, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := Ask(t.Context(), c.target)
			assert.Equal(t, c.verdict, a.Verdict, a.Text)
			assert.Contains(t, a.Text, c.text)
		})
	}
}

func TestAskEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	at := netip.MustParseAddrPort(l.Addr().String())
	a := Ask(ctx, target(t, at, key(t), key(t).PublicKey()))
	assert.Equal(t, Silent, a.Verdict)
}

func TestOutput(t *testing.T) {
	access, host := key(t), key(t)
	to := target(t, machine(t, host, access.PublicKey()), access, host.PublicKey())
	text, err := Output(t.Context(), to, "echo one\necho two\n")
	require.NoError(t, err)
	assert.Equal(t, "one\ntwo\n", string(text))
	to.HostKey = key(t).PublicKey()
	_, err = Output(t.Context(), to, "echo one")
	assert.ErrorContains(t, err, "another machine answers")
}

func TestOctal(t *testing.T) {
	packet := []byte{0, 1, '%', '\\', 0xff}
	out, err := exec.Command("bash", "-c", `printf "$0" | od -An -v -tu1`, octalEscape(packet)).Output()
	if err != nil {
		t.Skip("this machine has no bash: ", err)
	}
	var got []byte
	for _, f := range strings.Fields(string(out)) {
		n, err := strconv.Atoi(f)
		require.NoError(t, err)
		got = append(got, byte(n))
	}
	assert.Equal(t, packet, got)
}
