package bmc

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	lab "firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/redfish"
)

// Insert makes a lamp a machine of package redfish.
func (lamp) Insert(string) error { return nil }

// closedPort is an address of the loopback at which nothing answers.
func closedPort(t *testing.T) netip.AddrPort {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

// TestOpenIPMIIsFoundAndSaysWhichServerItIsOf, at one login, by somebody else's IPMI.
func TestOpenIPMIIsFoundAndSaysWhichServerItIsOf(t *testing.T) {
	for _, program := range []string{lab.Program, "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed; scripts/deps lab installs it", program)
		}
	}

	const own = "own-password" // the simulator takes no blanks
	for serial, want := range map[string]Identity{"ABC1234": {Model: "QEMU Lab", Serial: "ABC1234"}, "": {}} {
		front, err := net.ListenPacket("udp4", "127.0.0.1:0")
		require.NoError(t, err)
		b, err := lab.Start(lab.Config{
			Name: "node1", Dir: t.TempDir(), User: "admin", Password: own, Serial: serial, Front: front,
		}, lamp{})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, b.Close()) })
		at := netip.MustParseAddrPort(front.LocalAddr().String())

		var p Presence
		require.Eventually(t, func() bool { // it starts
			p = askPresence(t.Context(), at, closedPort(t))
			return p.IsBMC()
		}, time.Minute, 100*time.Millisecond)
		assert.Equal(t, Presence{IPMI: true}, p)
		assert.Equal(t, "answers a presence ping as IPMI does", p.String())

		client := Client{Pins: pins(t)}
		address, who, a := client.Identify(t.Context(), asked("ipmi://"+at.String(), own))
		require.Equal(t, OK, a.Verdict, a.Text)
		assert.EqualValues(t, "ipmi://"+at.String(), address)
		assert.Equal(t, want, who)
		assert.False(t, a.On)

		_, who, a = client.Identify(t.Context(), asked("ipmi://"+at.String(), "a wrong one"))
		assert.Equal(t, Refused, a.Verdict, a.Text)
		assert.Zero(t, who)
	}
}

// TestRedfishIsFoundAndSaysWhichServerItIsOf: the service root tells that it is there, and only the login which system.
func TestRedfishIsFoundAndSaysWhichServerItIsOf(t *testing.T) {
	front, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	mac, err := net.ParseMAC("52:54:00:00:00:0A")
	require.NoError(t, err)
	b, err := redfish.Start(redfish.Config{
		Name: "node1", Dir: t.TempDir(), User: "admin", Password: password, Serial: "ABC1234",
		MACs: []net.HardwareAddr{mac}, Front: front,
	}, lamp{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	at := netip.MustParseAddrPort(front.Addr().String())

	p := askPresence(t.Context(), closedPort(t), at)
	assert.Equal(t, Presence{Redfish: "1.6.0"}, p)
	assert.Equal(t, "has a service root of Redfish 1.6.0", p.String())

	client := Client{Pins: pins(t)}
	address, who, a := client.Identify(t.Context(), asked("redfish://"+at.String(), password))
	require.Equal(t, OK, a.Verdict, a.Text)
	assert.EqualValues(t, "redfish://"+at.String()+redfish.SystemPath, address)
	assert.Equal(t, Identity{Model: "QEMU", Serial: "ABC1234", MACs: []string{"52:54:00:00:00:0a"}}, who)
	assert.Equal(t, OK, client.Login(t.Context(), asked(string(address), password)).Verdict, "a node cannot have that address")

	_, who, a = client.Identify(t.Context(), asked("redfish://"+at.String(), "wrong"))
	assert.Equal(t, Refused, a.Verdict, a.Text)
	assert.Zero(t, who)
}

// TestWhatIsNoBMC: a machine that answers neither, and web servers, are asked for no login.
func TestWhatIsNoBMC(t *testing.T) {
	page := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>a switch</html>"))
	}))
	defer page.Close()
	missing := httptest.NewTLSServer(http.NotFoundHandler())
	defer missing.Close()
	for _, server := range []*httptest.Server{page, missing} {
		p := askPresence(t.Context(), closedPort(t), netip.MustParseAddrPort(server.Listener.Addr().String()))
		assert.False(t, p.IsBMC())
		assert.Equal(t, "answers neither a presence ping nor Redfish", p.String())
	}
}

func TestAddressToLogInAt(t *testing.T) {
	four, six := netip.MustParseAddr("10.30.0.101"), netip.MustParseAddr("fd00::1")
	assert.Equal(t, site.BMCAddress("ipmi://10.30.0.101"), Presence{IPMI: true, Redfish: "1.6.0"}.Address(four))
	assert.Equal(t, site.BMCAddress("redfish://10.30.0.101"), Presence{Redfish: "1.6.0"}.Address(four))
	assert.Equal(t, site.BMCAddress("ipmi://[fd00::1]"), Presence{IPMI: true}.Address(six))
}

func TestTheOneSystemOfABMC(t *testing.T) {
	const member = `{"@odata.id": "/redfish/v1/Systems/System.Embedded.1"}`
	for text, want := range map[string]string{
		`{"Members": [` + member + `]}`:                          "/redfish/v1/Systems/System.Embedded.1",
		`{"Members": [{"@odata.id": "/redfish/v1/Systems/1/"}]}`: "/redfish/v1/Systems/1",
		`{"Members": [` + member + `, ` + member + `]}`:          "is that of 2 systems",
		`{"Members": []}`: "is that of 0 systems",
		`{"Members": [{"@odata.id": "//elsewhere/redfish/v1/Systems/1"}]}`:                     "names its system by an odd path",
		`{"Members": [{"@odata.id": "/redfish/v1/Systems/1?x=y"}]}`:                            "names its system by an odd path",
		`{"Members": [{"@odata.id": "/redfish/v1/Systems/` + strings.Repeat("a", 200) + `"}]}`: "names its system by an odd path",
		`<html>`: "answers with something that is no Redfish",
	} {
		path, err := onlySystem([]byte(text))
		if err != nil {
			path = err.Error()
		}
		assert.Equal(t, want, path, text)
	}
}
