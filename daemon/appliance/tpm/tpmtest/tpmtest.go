// Package tpmtest runs TPMs in software (swtpm) for tests: each has its state in a directory, as a TPM has it in its
// chip, and ends with the test.
package tpmtest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxudstpm"
	"github.com/stretchr/testify/require"
)

// TPM is one TPM with power: Start gives it power, Stop takes it away and keeps its state.
type TPM struct {
	Control string // unix socket of swtpm's control channel, for QEMU

	server string
	cmd    *exec.Cmd
	ended  chan struct{}
}

// SkipWithout skips a test without swtpm.
func SkipWithout(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("swtpm"); err != nil {
		t.Skip("needs swtpm: scripts/deps test")
	}
}

// Start gives power to the TPM whose state is in dir, a new one if there is none, as a reset does: its PCRs are those
// that firmware finds. Commands are taken from Open.
func Start(t testing.TB, dir string) *TPM {
	t.Helper()
	socket := filepath.Join(sockets(t), "data")
	p := start(t, dir, "--server", "type=unixio,path="+socket+",disconnect", "--flags", "not-need-init,startup-clear")
	p.server = socket
	p.awaitServer(t)
	return p
}

// awaitServer waits until connections are taken: the socket is there a moment before.
func (p *TPM) awaitServer(t testing.TB) {
	t.Helper()
	for {
		c, err := net.Dial("unix", p.server)
		if err == nil {
			c.Close()
			return
		}
		select {
		case <-p.ended:
			require.FailNow(t, "swtpm has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// StartForQEMU gives power to the TPM of a machine in QEMU, which resets it, and at whose end it ends.
func StartForQEMU(t testing.TB, dir string) *TPM {
	t.Helper()
	return start(t, dir, "--terminate")
}

// sockets is a directory with a short name: a socket's has room for 108 characters (unix(7)).
func sockets(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tpm")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func start(t testing.TB, dir string, args ...string) *TPM {
	t.Helper()
	SkipWithout(t)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	p := &TPM{Control: filepath.Join(sockets(t), "control"), ended: make(chan struct{})}

	var stderr bytes.Buffer
	p.cmd = exec.Command("swtpm", append([]string{"socket", "--tpm2", "--tpmstate", "dir=" + dir,
		"--ctrl", "type=unixio,path=" + p.Control}, args...)...)
	p.cmd.Stdout, p.cmd.Stderr = &stderr, &stderr
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(p.Stop)

	for {
		if _, err := os.Stat(p.Control); err == nil {
			return p
		}
		select {
		case <-p.ended:
			require.FailNow(t, "swtpm has ended", stderr.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Open connects to a TPM of Start.
func (p *TPM) Open(t testing.TB) transport.TPM {
	t.Helper()
	c, err := linuxudstpm.Open(p.server)
	require.NoError(t, err)
	return c
}

// Stop takes the power away.
func (p *TPM) Stop() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}
