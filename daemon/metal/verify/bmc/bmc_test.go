package bmc

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/bougou/go-ipmi/pkg/bmc"
	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
	"github.com/bougou/go-ipmi/pkg/server"
	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
)

const password = "the right one"

// asked is a BMC by its address with a password.
func asked(address, password string) site.BMC {
	return site.BMC{Address: site.BMCAddress(address), Username: "admin", Password: site.NewSecret(password)}
}

// controller is a BMC in this process; it counts the packets of each kind that it gets.
func controller(t *testing.T) (address string, seen func(types.PayloadType) int) {
	inner, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	var counts [64]atomic.Int32
	b := bmc.New(bmc.DeviceInfo{DeviceID: 32, IPMIVersion: 0x20}, [16]byte{1}, mock.New())
	user, err := b.Users.Add(2, "admin")
	require.NoError(t, err)
	user.SetPassword([]byte(password))
	user.Enabled = true
	user.ChannelAccess[1] = bmc.UserChannelAccess{MaxPrivilege: bmc.PrivilegeLevelAdministrator, Enabled: true}
	s := server.NewServer(b, counting{inner, &counts})
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() { s.Close(); <-ended })
	return "ipmi://" + inner.LocalAddr().String(), func(p types.PayloadType) int { return int(counts[p].Load()) }
}

type counting struct {
	net.PacketConn
	counts *[64]atomic.Int32
}

func (c counting) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.PacketConn.ReadFrom(b)
	if n > 5 && b[4] == 6 { // RMCP+: its payload type follows
		c.counts[b[5]&0x3f].Add(1)
	}
	return n, from, err
}

func TestIPMI(t *testing.T) {
	address, seen := controller(t)
	a := Client{Pins: pins(t)}.Login(t.Context(), asked(address, password))
	assert.Equal(t, OK, a.Verdict, a.Text)
	assert.Equal(t, 1, seen(types.PayloadTypeRAKPMessage3))

	a = Client{Pins: pins(t)}.Login(t.Context(), asked(address, "a wrong one"))
	assert.Equal(t, Refused, a.Verdict, a.Text)
	assert.Contains(t, a.Text, `refuses the password of user "admin"`)
	assert.Equal(t, 2, seen(types.PayloadTypeRAKPMessage1), "a refused password was tried again")
	assert.Equal(t, 1, seen(types.PayloadTypeRAKPMessage3), "the message that BMCs count wrong logins by was sent")

	stranger := asked(address, password)
	stranger.Username = "nobody"
	a = Client{Pins: pins(t)}.Login(t.Context(), stranger)
	assert.Equal(t, Refused, a.Verdict, a.Text)
	assert.Contains(t, a.Text, `user "nobody"`)
	assert.NotContains(t, fmt.Sprintf("%+v", a), password)
}

func TestIPMINobodyThere(t *testing.T) {
	free, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.LocalAddr().String()
	require.NoError(t, free.Close())
	a := Client{Pins: pins(t)}.Login(t.Context(), asked("ipmi://"+address, password))
	assert.Equal(t, Silent, a.Verdict)
	assert.Contains(t, a.Text, "nothing answers IPMI over LAN on port")
	assert.Contains(t, a.Fix, "enable IPMI over LAN")
}

func TestWhatErrorsMean(t *testing.T) {
	rmcp := func(c types.RmcpStatusCode) error { return fmt.Errorf("rakp: %w", types.NewRmcpStatusError(c)) }
	for _, c := range []struct {
		err  error
		want Verdict
		text string
	}{
		{fmt.Errorf("rakp2: %w", client.ErrRAKPAuthentication), Refused, "refuses the password"},
		{rmcp(types.RmcpStatusCodeUnauthorizedName), Refused, "no such user"},
		{rmcp(types.RmcpStatusCodeUnauthorizedRoleOfPriLevel), Refused, "rights of an administrator"},
		{rmcp(types.RmcpStatusCodeInvalidIntegrityCheckValue), Refused, "refuses the password"},
		{rmcp(types.RmcpStatusCodeNoResToCreateSess), Busy, "no room"},
		{rmcp(types.RmcpStatusCodeNoCipherSuiteMatch), Unfit, "neither cipher suite 3 nor 17"},
		{rmcp(types.RmcpStatusCodeIllegalParameter), Unfit, "does not open a session"},
		{fmt.Errorf("dial: %w", &net.OpError{Op: "read", Err: syscall.ECONNREFUSED}), Silent, "nothing answers IPMI"},
		{fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}), Silent, "no way to the BMC"},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), Silent, "does not answer"},
		{&net.DNSError{Name: "bmc-7", IsNotFound: true}, Silent, "not known to this appliance's resolvers"},
	} {
		a := judgeIPMIError(asked("ipmi://10.0.0.5", password), c.err)
		assert.Equal(t, c.want, a.Verdict, "%v", c.err)
		assert.Contains(t, a.Text, c.text)
		assert.NotEmpty(t, a.Fix, "%v names no way out", c.err)
	}
}

func TestRedfish(t *testing.T) {
	var logins atomic.Int32
	status := http.StatusOK
	mux := http.NewServeMux()
	mux.HandleFunc("/redfish/v1/", func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := r.BasicAuth(); ok {
			logins.Add(1)
		}
		if r.URL.Path != "/redfish/v1/" {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	mux.HandleFunc("/redfish/v1/Systems/1", func(w http.ResponseWriter, r *http.Request) {
		logins.Add(1)
		if _, p, _ := r.BasicAuth(); p != password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(status)
		fmt.Fprint(w, `{"PowerState": "On"}`)
	})
	mux.HandleFunc("/redfish/v1/Systems/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://10.9.9.9/redfish/v1/Systems/1", http.StatusFound)
	})
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer plain.Close()
	defer secure.Close()
	http := "redfish+http://" + strings.TrimPrefix(plain.URL, "http://")
	https := "redfish://" + strings.TrimPrefix(secure.URL, "https://")

	verified := asked(https+"/redfish/v1/Systems/1", password)
	verified.VerifyCertificate = site.CheckCA
	for _, c := range []struct {
		name   string
		bmc    site.BMC
		status int
		want   Verdict
		text   string
		logins int32
	}{
		{"plain", asked(http+"/redfish/v1/Systems/1", password), 200, OK, "takes the password by Redfish", 1},
		{"with TLS", asked(https+"/redfish/v1/Systems/1", password), 200, OK, "", 1},
		{"wrong password", asked(http+"/redfish/v1/Systems/1", "wrong"), 200, Refused, "401", 1},
		{"no such system", asked(http+"/redfish/v1/Systems/9", password), 200, Unfit, "has no /redfish/v1/Systems/9", 1},
		{"sent elsewhere", asked(http+"/redfish/v1/Systems/away", password), 200, Unfit, "sends /redfish/v1/Systems/away on to http://10.9.9.9", 0},
		{"broken", asked(http+"/redfish/v1/Systems/1", password), 500, Unfit, "with 500", 1},
		{"busy", asked(http+"/redfish/v1/Systems/1", password), 503, Busy, "busy", 1},
		{"certificate of nobody", verified, 200, Unfit, "not to be trusted", 0},
		{"no TLS there", asked(strings.Replace(http, "+http", "", 1)+"/redfish/v1/Systems/1", password), 200, Unfit, "does not speak TLS", 0},
		{"nobody there", asked("redfish://127.0.0.1:9/redfish/v1/Systems/1", password), 200, Silent, "nothing answers Redfish on port 9", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			logins.Store(0)
			status = c.status
			a := Client{Pins: pins(t)}.Login(t.Context(), c.bmc)
			assert.Equal(t, c.want, a.Verdict, a.Text)
			assert.Contains(t, a.Text, c.text)
			assert.Equal(t, c.logins, logins.Load(), "logins")
			assert.Equal(t, c.want == OK, a.Fix == "", "a way out is named if and only if it is needed")
			assert.NotContains(t, a.Text+a.Fix, password)
			if c.want == OK {
				assert.True(t, a.On)
			}
		})
	}
}
