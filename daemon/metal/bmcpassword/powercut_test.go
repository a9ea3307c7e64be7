package bmcpassword

import (
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	lab "firstlight.dev/firstlight/image/lab/bmc"
)

// TestThePowerFailsWhileABMCGetsItsPassword by Redfish, at each moment: before, in and after each write to DATA, at
// each request to the BMC and at each answer, and around the Secret. The BMC never has a password that is neither on
// DATA nor in the site.
func TestThePowerFailsWhileABMCGetsItsPassword(t *testing.T) {
	r := emptyRack(t)
	server := r.addRedfish()
	moments := r.failAt(1, 1, func() { assert.Contains(t, r.passwords(), server.Password()) })
	t.Logf("Redfish: the power failed at %d moments", moments)
	assert.Greater(t, moments, 40, "eight requests and eight writes at least")
}

// TestThePowerFailsWhileABMCGetsItsPasswordByIPMI is that with OpenIPMI's BMC, where each datagram is a moment.
func TestThePowerFailsWhileABMCGetsItsPasswordByIPMI(t *testing.T) {
	for _, program := range []string{lab.Program, "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed; scripts/deps lab installs it", program)
		}
	}

	// A daemon without power is waited for by IPMI's own timeouts, seconds each, so several BMCs share the moments.
	const several = 8
	var failures atomic.Int64
	t.Run("moments", func(t *testing.T) {
		for first := range several {
			t.Run(fmt.Sprint(first+1), func(t *testing.T) {
				t.Parallel()
				r := emptyRack(t)
				r.addIPMI()
				failures.Add(int64(r.failAt(first+1, several, func() {})))
			})
		}
	})
	t.Logf("IPMI: the power failed at %d moments", failures.Load())
	assert.Greater(t, int(failures.Load()), 40, "eight writes, and two logins of ten datagrams each")
}

// TestThePowerFailsOverAndOver within one replacement, once at every fourth moment, and then with each of four starts
// within the hour, at every third moment after it. Who would ask the BMC with each start would lock the account.
func TestThePowerFailsOverAndOver(t *testing.T) {
	r := emptyRack(t)
	server := r.addRedfish()
	failures := 0
	for first, failed := 1, true; failed; first += 4 {
		for second, again := 1, true; again; second += 3 {
			r.reset()
			failed = r.fails(first)
			again = failed
			for starts := 0; again && starts < 4; starts++ {
				failures++
				again = r.fails(second)
			}
			require.Contains(t, r.passwords(), server.Password(), "%d, %d", first, second)
			r.endReplacement(fmt.Sprintf("moments %d, %d", first, second))
		}
	}
	t.Logf("the power failed %d times", failures)
	assert.Greater(t, failures, 100)
}

// failAt replaces the password of the rack's one BMC again and again. Each time the power fails at another moment, the
// first and then every so many, and check is called while it is off. It returns how often it failed.
func (r *rack) failAt(first, every int, check func()) (failures int) {
	for moment := first; ; moment += every {
		r.reset()
		failed := r.fails(moment)
		check()
		r.endReplacement(fmt.Sprint("moment ", moment))
		if !failed {
			return failures
		}
		failures++
	}
}

// reset empties DATA, and has the site say what the BMC takes.
func (r *rack) reset() {
	r.t.Helper()
	if present := r.kept(0).Present; present != "" {
		r.site.Nodes[0].BMC.Password = site.NewSecret(present)
	}
	r.dir, r.refused = r.t.TempDir(), nil
	r.power.restore(0)
	r.handOver(r.start())
}

// fails has a daemon be asked and work until the power fails at a moment; false: it was done before.
func (r *rack) fails(moment int) bool {
	r.power.restore(moment)
	rotation := r.start()
	r.ask(rotation)
	for range 6 {
		r.round(rotation)
	}
	return !r.power.isOn()
}

// ask asks for another password unless the account has one, as a person does whose command was interrupted.
func (r *rack) ask(rotation *Rotation) {
	var command sync.WaitGroup
	command.Go(func() { // it ends where the power fails
		if kept := r.kept(0); kept.Present != "" || kept.IsRotating() {
			return
		}
		begun, err := rotation.Begin(nil)
		assert.NoError(r.t, err)
		assert.Equal(r.t, 1, begun)
	})
	command.Wait()
}

// endReplacement has a daemon with lasting power end it, and checks what became of it.
func (r *rack) endReplacement(name string) {
	r.t.Helper()
	r.power.restore(0)
	rotation := r.start()
	r.ask(rotation)
	r.finish(rotation)
	require.LessOrEqual(r.t, r.mostRefused(), triesPerWindow, "%s: refused at %v", name, r.refused)
	require.False(r.t, r.t.Failed(), name)
}

// passwords are those that DATA or the site has for the rack's one BMC.
func (r *rack) passwords() []string {
	kept := r.kept(0)
	return []string{kept.Present, kept.Next, r.site.Nodes[0].BMC.Password.Reveal()}
}
