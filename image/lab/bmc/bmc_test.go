package bmc

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fake is a machine that notes what is done to it.
type fake struct {
	mu    sync.Mutex
	on    bool
	calls []string
}

func (f *fake) did(on bool, what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on, f.calls = on, append(f.calls, what)
	return nil
}

func (f *fake) IsOn() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.on
}
func (f *fake) SwitchOn(device string) error { return f.did(true, "on "+device) }
func (f *fake) SwitchOff() error             { return f.did(false, "off") }
func (f *fake) ShutDown() error              { return f.did(true, "shut down") }

func (f *fake) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...)
}

// started is a BMC on loopback, and ipmitool against it.
func started(t *testing.T, dir string) (*BMC, *fake, func(args string) (string, error)) {
	for _, program := range []string{Program, "ipmitool", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed; scripts/deps lab installs it", program)
		}
	}
	front, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	machine := &fake{}
	b, err := Start(Config{Name: "node1", Dir: dir, User: "admin", Password: "secret", Front: front}, machine)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })
	port := strconv.Itoa(front.LocalAddr().(*net.UDPAddr).Port)
	return b, machine, func(args string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "ipmitool", append([]string{"-v", "-I", "lanplus", "-H", "127.0.0.1", "-p", port, "-U", "admin"}, strings.Fields(args)...)...).CombinedOutput()
		return string(out), err
	}
}

func TestButtons(t *testing.T) {
	b, machine, ipmitool := started(t, t.TempDir())
	for _, c := range []struct{ say, hear string }{
		{"-P secret power status", "Power is off"},
		{"-P secret chassis bootdev pxe", "Set Boot Device to pxe"},
		{"-P secret power on", "Up/On"},
		{"-P secret power status", "Power is on"},
		{"-P secret power reset", "Reset"},
		{"-P secret power soft", "Soft"},
		{"-P secret power off", "Down/Off"},
		{"-P secret power status", "Power is off"},
	} {
		out, err := ipmitool(c.say)
		require.NoError(t, err, "%s: %s", c.say, out)
		assert.Contains(t, out, c.hear)
		// What every call begins with is answered, or each would take ten seconds.
		assert.NotContains(t, out, "Unable to Get Channel Cipher Suites")
	}
	assert.Equal(t, []string{"on pxe", "off", "on pxe", "shut down", "off"}, machine.seen())
	assert.Equal(t, []string{"boot pxe", "power 1", "reset 1", "shutdown 1", "power 0"}, b.Writes())
	assert.Equal(t, BootNetwork, b.Device())
}

// stuck is a machine that cannot be switched on.
type stuck struct{ fake }

func (*stuck) SwitchOn(string) error { return errors.New("there is no memory") }

func TestAnOrderThatFailsIsReported(t *testing.T) {
	var reported []string
	b := &BMC{config: Config{Name: "node1", Report: func(err error) { reported = append(reported, err.Error()) }}, machine: &stuck{}}
	for _, order := range []string{"set power 0", "set power 1", "set boot pxe", "set reset 1"} {
		b.serveChassis(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/?do="+url.QueryEscape(order), nil))
	}
	assert.Equal(t, []string{"BMC of node1: power 1: there is no memory", "BMC of node1: reset 1: there is no memory"}, reported)
	b.config.Report = nil
	answer := httptest.NewRecorder()
	b.serveChassis(answer, httptest.NewRequest(http.MethodPost, "/?do=set+power+1", nil))
	assert.Equal(t, http.StatusInternalServerError, answer.Code)
}

func TestAWrongPasswordIsRefused(t *testing.T) {
	_, machine, ipmitool := started(t, t.TempDir())
	out, err := ipmitool("-P wrong power on")
	assert.Error(t, err)
	assert.Contains(t, out, "Unable to establish IPMI v2 / RMCP+ session")
	assert.Empty(t, machine.seen())
}

// TestALongDirectory is one whose socket has a name that the kernel does not take.
func TestALongDirectory(t *testing.T) {
	_, _, ipmitool := started(t, t.TempDir()+"/"+strings.Repeat("long/", 25))
	out, err := ipmitool("-P secret power status")
	require.NoError(t, err, out)
}

// asked is what ipmitool 1.8.19 sends first.
const asked = "0600ff07 06 00 00000000 00000000 0a00 20 18 c8 81 00 54 0e 00 80 9d"

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return b
}

func TestCipherSuites(t *testing.T) {
	assert.Equal(t, unhex(t, "0600ff07 06 00 00000000 00000000 0e00 81 1c 63 20 00 54 00 01 c0 03 01 41 81 05"), cipherSuites(unhex(t, asked)))
	second := unhex(t, asked)
	second[len(second)-2] = 0x81 // the second 16 bytes of the list: there are none
	assert.Equal(t, unhex(t, "0600ff07 06 00 00000000 00000000 0900 81 1c 63 20 00 54 00 01 8b"), cipherSuites(second))
	for at, value := range map[int]byte{4: 0, 5: 0x10, 6: 1, 14: 9, 17: 0x1c, 21: 0x38} {
		other := unhex(t, asked)
		other[at] = value
		assert.Nil(t, cipherSuites(other), "byte %d", at)
	}
}

func FuzzCipherSuites(f *testing.F) {
	f.Add(unhex(f, asked))
	f.Fuzz(func(t *testing.T, packet []byte) {
		if answer := cipherSuites(packet); answer != nil {
			assert.True(t, bytes.HasPrefix(packet, answer[:14]))
			assert.Zero(t, checksum(answer[16:19]))
			assert.Zero(t, checksum(answer[19:]))
		}
	})
}
