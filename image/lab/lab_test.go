package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/image/lab/accelerator"
)

func TestCommandLine(t *testing.T) {
	for name, c := range map[string]Config{
		"bios-usb":       {Disks: []Disk{{Image: "a.img"}}},
		"kvm":            {Accel: accelerator.KVM},
		"secure-boot":    {Firmware: SecureBoot, CPUs: 1, MiB: 1024, Disks: []Disk{{Bus: NVMe, Serial: "S1"}}},
		"two-usb-sticks": {Firmware: UEFI, Disks: []Disk{{Bus: USB}, {Bus: USB}, {Bus: AHCI}, {Bus: EHCI}}},
		"switch":         {NICs: []NIC{{Port: "/s/0,a", NoROM: true, BootIx: 1}, {User: true, Model: "e1000e"}, {}}},
		"scsi":           {Disks: []Disk{{Bus: SCSI}, {Bus: SCSI}}},
		"cd":             {CD: &CD{Image: "/d/disc,1.iso", BootIx: 1}, Disks: []Disk{{Bus: Virtio, BootIx: 2}}},
		"empty-cd":       {CD: &CD{}, NICs: []NIC{{BootIx: 1}}},
		"kernel":         {Kernel: "vmlinuz", Initrd: "initrd", Append: "console=ttyS0 x='y'", Disks: []Disk{{Bus: Virtio, Direct: true}}, Extra: []string{"-snapshot"}},
	} {
		c.Dir = "/lab"
		c, err := c.withDefaults()
		require.NoError(t, err)
		drives := make([]drive, len(c.Disks))
		for i := range drives {
			drives[i] = drive{"/lab/disk,0.qcow2", "qcow2"}
		}
		got := strings.ReplaceAll(shellLine(qemu, qemuArgs(c, firmwareFiles{"/fw/code.fd", "/lab/vars.fd"}, drives)), " -", " \\\n  -") + "\n"
		goldentest.Check(t, "testdata/"+name+".txt", got)
	}
}

func TestConfigNeedsADirectory(t *testing.T) {
	_, err := New(Config{Name: "x"})
	assert.ErrorContains(t, err, "no directory")
}

// TestFailure tells a QEMU that died from a machine that was switched off.
func TestFailure(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, c := range []struct{ name, script, want string }{
		{"the guest switched itself off", "exit 0", ""},
		{"no memory", `echo "warning: something" >&2; echo "$0: cannot set up guest memory" >&2; exit 1`, "QEMU has ended: exit status 1: " + bin + "/" + qemu + ": cannot set up guest memory"},
		{"killed", "kill -KILL $$", "QEMU has ended: signal: killed: as the kernel does where memory is short"},
		{"asked to end", `echo "qemu: terminating on signal 15 from pid 1" >&2`, "QEMU has ended: qemu: terminating on signal 15 from pid 1"},
		{"said nothing", "exit 3", "QEMU has ended: exit status 3: it said nothing"},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, qemu), []byte("#!/bin/sh\n"+c.script+"\n"), 0o755))
		m, err := New(Config{Dir: t.TempDir()})
		require.NoError(t, err)
		require.NoError(t, m.Start(t.Context()))
		_ = m.Wait(t.Context())
		if c.want == "" {
			assert.NoError(t, m.Failure(), c.name)
		} else {
			assert.EqualError(t, m.Failure(), c.want, c.name)
		}
		require.NoError(t, os.WriteFile(filepath.Join(bin, qemu), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755))
		require.NoError(t, m.Start(t.Context()))
		assert.NoError(t, m.Failure(), "it is on again")
		require.NoError(t, m.Kill())
		assert.NoError(t, m.Failure(), "its plug was pulled")
		require.NoError(t, m.Close())
	}
}

// TestThrottle throttles a machine that is off: its start counts, and it is freed while it runs.
func TestThrottle(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	require.NoError(t, os.WriteFile(filepath.Join(bin, qemu), []byte("#!/bin/sh\nwhile :; do :; done\n"), 0o755))
	m, err := New(Config{Dir: t.TempDir()})
	require.NoError(t, err)
	defer m.Close()
	assert.EqualError(t, m.Throttle(-1), "throttle machine machine to -1 processors: want 0, which frees it, or more")
	stopped := func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.PID()))
		require.NoError(t, err)
		return strings.Contains(string(text), ") T ")
	}
	require.NoError(t, m.Throttle(0.01))
	for range 2 {
		require.NoError(t, m.Start(t.Context()))
		require.Eventually(t, stopped, time.Minute, time.Millisecond)
		require.NoError(t, m.Kill(), "one that is stopped loses its power as well")
	}
	require.NoError(t, m.Start(t.Context()))
	require.Eventually(t, stopped, time.Minute, time.Millisecond)
	require.NoError(t, m.Throttle(0))
	for range 20 {
		assert.False(t, stopped(), "it is left stopped")
		time.Sleep(10 * time.Millisecond)
	}
}

func TestConsole(t *testing.T) {
	var log bytes.Buffer
	c := newConsole(&log)
	c.attach(io.Discard)
	c.Write([]byte("\x1b[2J\x1b[1;1Hfirst\r\n[  \x1b[0;32mOK\x1b[0m  ] sec"))
	line, err := c.Wait(t.Context(), "first")
	require.NoError(t, err)
	assert.Equal(t, "first", line)

	go c.Write([]byte("ond\r\n\r\nthird"))
	line, err = c.Wait(t.Context(), "second")
	require.NoError(t, err)
	assert.Equal(t, "[  OK  ] second", line, "a line may come in parts")

	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = c.Wait(short, "first")
	assert.ErrorIs(t, err, context.DeadlineExceeded, "what was passed is not seen again")
	assert.ErrorContains(t, err, "    third", "the error quotes what there is")

	c.detach()
	_, err = c.Wait(t.Context(), "third")
	require.NoError(t, err, "an unfinished line counts once the machine is off")
	_, err = c.Wait(t.Context(), "fourth")
	assert.ErrorContains(t, err, "the machine ended")
	assert.Equal(t, []string{"first", "[  OK  ] second", "third"}, c.Lines())
	assert.Regexp(t, `^\d\d:\d\d:\d\d\.\d\d first\n\d\d:\d\d:\d\d\.\d\d \[  OK  \] second\n`, log.String())
	assert.Equal(t, []string{"third"}, c.LinesFrom(2))
	assert.Empty(t, c.LinesFrom(3))
	assert.Equal(t, "third", c.LastLine())
	assert.Error(t, c.Type("x"), "the machine is off")
}

// fakeQMP answers as QEMU does: a greeting, then each command, with an event in between.
func fakeQMP(t *testing.T) (path string) {
	path = filepath.Join(t.TempDir(), "qmp")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, `{"QMP": {"version": {}, "capabilities": []}}`+"\r\n")
		dec := json.NewDecoder(conn)
		for {
			var m struct {
				Execute string `json:"execute"`
			}
			if dec.Decode(&m) != nil {
				return
			}
			switch m.Execute {
			case "qmp_capabilities":
				io.WriteString(conn, `{"return": {}}`+"\r\n")
			case "query-status":
				io.WriteString(conn, `{"event": "RESET", "data": {"guest": true}, "timestamp": {}}`+"\r\n"+`{"return": {"status": "running"}}`+"\r\n")
			case "quit":
				return
			default:
				io.WriteString(conn, `{"error": {"class": "CommandNotFound", "desc": "no such thing"}}`+"\r\n")
			}
		}
	}()
	return path
}

func TestQMP(t *testing.T) {
	q, err := dialQMP(t.Context(), fakeQMP(t))
	require.NoError(t, err)
	defer q.Close()
	var status struct {
		Status string `json:"status"`
	}
	require.NoError(t, q.Execute(t.Context(), "query-status", nil, &status))
	assert.Equal(t, "running", status.Status)
	event := <-q.Events()
	assert.Equal(t, "RESET", event.Name)
	assert.EqualError(t, q.Execute(t.Context(), "nonsense", nil, nil), "qmp nonsense: CommandNotFound: no such thing")
	assert.ErrorContains(t, q.Execute(t.Context(), "quit", nil, nil), "the machine ended")
	_, open := <-q.Events()
	assert.False(t, open)
}

func TestQMPGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := dialQMP(ctx, filepath.Join(t.TempDir(), "none"))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestQMPEndsWithTheMachine(t *testing.T) {
	r := &powerOnPeriod{ended: make(chan struct{})}
	close(r.ended)
	m := &Machine{config: Config{Name: "m", Dir: t.TempDir()}, run: r}
	_, err := m.QMP(t.Context())
	assert.ErrorIs(t, err, context.Canceled)
}
