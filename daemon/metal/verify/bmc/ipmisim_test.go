package bmc

import (
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	lab "firstlight.dev/firstlight/image/lab/bmc"
)

// lamp is a machine that does nothing.
type lamp struct{}

func (lamp) IsOn() bool            { return false }
func (lamp) SwitchOn(string) error { return nil }
func (lamp) SwitchOff() error      { return nil }
func (lamp) ShutDown() error       { return nil }

// TestAPasswordIsChangedAtOpenIPMI is TestAPasswordIsChangedByIPMI against somebody else's IPMI.
func TestAPasswordIsChangedAtOpenIPMI(t *testing.T) {
	for _, program := range []string{lab.Program, "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed; scripts/deps lab installs it", program)
		}
	}

	const former = "former-password"
	front, err := net.ListenPacket("udp4", "127.0.0.1:0")
	require.NoError(t, err)
	address := "ipmi://" + front.LocalAddr().String()
	b, err := lab.Start(lab.Config{Name: "node1", Dir: t.TempDir(), User: "admin", Password: former, Front: front}, lamp{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Close()) })

	client := Client{Pins: pins(t)}
	var a Answer
	deadline := time.Now().Add(5 * time.Minute)
	for a.Verdict != OK && time.Now().Before(deadline) { // it starts
		a = client.Login(t.Context(), asked(address, former))
	}
	require.Equal(t, OK, a.Verdict, a.Text)

	a = client.ChangePassword(t.Context(), asked(address, former), site.NewSecret(other))
	assert.Equal(t, OK, a.Verdict, a.Text)
	a = client.Login(t.Context(), asked(address, other))
	assert.Equal(t, OK, a.Verdict, a.Text)
	assert.Equal(t, Refused, client.Login(t.Context(), asked(address, former)).Verdict)
}
