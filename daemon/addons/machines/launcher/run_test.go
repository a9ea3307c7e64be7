package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

// guest is what the test's own program does in place of QEMU.
const guest = "FIRSTLIGHT_TEST_GUEST"

func TestMain(m *testing.M) {
	if mode := os.Getenv(guest); mode != "" {
		if err := runGuest(mode); err != nil {
			fmt.Fprintln(os.Stderr, "qemu: "+err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runGuest connects to the sockets as QEMU does, prints, echoes what is typed in upper case, and ends when the button is
// pressed, if it is not deaf.
func runGuest(mode string) error {
	switch {
	case mode == "broken":
		return fmt.Errorf("disk0: no such disk")
	case mode == "short without KVM" && slices.Contains(os.Args, "kvm"), mode == "crash":
		fmt.Fprintln(os.Stderr, "qemu: kvm_buf_set_msrs: Assertion failed.")
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM) // of SIGABRT Go itself makes an exit
		select {}
	}
	path := func(name string) string {
		for _, a := range os.Args {
			if _, p, ok := strings.Cut(a, "path="); ok && strings.HasSuffix(p, name) {
				return p
			}
		}
		return ""
	}
	serial, err := net.Dial("unix", path(serialSocket))
	if err != nil {
		return err
	}
	control, err := net.Dial("unix", path(monitorSocket))
	if err != nil {
		return err
	}
	fmt.Fprint(serial, "login: ")
	go func() {
		for b := make([]byte, 100); ; {
			n, err := serial.Read(b)
			if err != nil {
				return
			}
			_, _ = serial.Write(bytes.ToUpper(b[:n]))
		}
	}()

	fmt.Fprintln(control, `{"QMP": {"version": {}, "capabilities": []}}`)
	for decoder := json.NewDecoder(control); ; {
		var command struct{ Execute string }
		if err := decoder.Decode(&command); err != nil {
			return err
		}
		fmt.Fprintln(control, `{"return": {}}`)
		switch {
		case command.Execute == "qmp_capabilities" && strings.HasPrefix(mode, "short"), command.Execute == "quit":
			return nil
		case command.Execute == "system_powerdown" && mode == "hears":
			fmt.Fprintln(control, `{"event": "SHUTDOWN", "data": {"guest": true}}`)
			return nil
		}
	}
}

// buffer is written by several.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// launch starts a machine without disks.
func launch(t *testing.T, mode string, grace int64) (ctx context.Context, stop func(), ended chan error, console *buffer, root string) {
	t.Helper()
	t.Setenv(guest, mode)
	self, err := os.Executable()
	require.NoError(t, err)
	root, err = os.MkdirTemp("", "machine") // a socket's name is short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(root) })
	require.NoError(t, os.MkdirAll(filepath.Join(root, RunDir), 0o700))

	console = &buffer{}
	l := Launcher{Root: root, Program: self, Console: console, Stderr: t.Output(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	m := Machine{Name: "web", Spec: v1.InstanceSpec{TerminationGracePeriodSeconds: &grace}}
	ctx, stop = context.WithCancel(t.Context())
	t.Cleanup(stop)
	arguments := func(with Accelerator) []string {
		args := Arguments(m, nil, with, nil)
		for i, a := range args {
			args[i] = strings.ReplaceAll(a, "path=", "path="+root)
		}
		return args
	}
	ended = make(chan error, 1)
	go func() { ended <- l.runMachine(ctx, arguments, KVM, gracePeriod(m.Spec)) }()
	return ctx, stop, ended, console, root
}

// hung ends a test that waits for what never comes.
const hung = 2 * time.Minute

func wait(t *testing.T, ended chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(hung):
		require.Fail(t, "it does not end")
		return nil
	}
}

func TestAGuestIsPoweredDown(t *testing.T) {
	for mode, c := range map[string]struct {
		grace int64
		least time.Duration
	}{
		"hears": {3600, 0}, // nobody waits so long
		"deaf":  {1, time.Second},
	} {
		t.Run(mode, func(t *testing.T) {
			ctx, stop, ended, console, root := launch(t, mode, c.grace)
			require.Eventually(t, func() bool { return CheckRunning(ctx, root) == nil }, hung, 10*time.Millisecond)
			require.Eventually(t, func() bool { return console.String() == "login: " }, hung, 10*time.Millisecond)
			began := time.Now()
			stop()
			require.NoError(t, wait(t, ended))
			assert.GreaterOrEqual(t, time.Since(began), c.least)
			assert.Error(t, CheckRunning(t.Context(), root))
		})
	}
}

func TestAMachineEndsWithItsGuest(t *testing.T) {
	_, _, ended, _, _ := launch(t, "short", 30)
	assert.NoError(t, wait(t, ended))
}

func TestAMachineThatDoesNotStartSaysWhy(t *testing.T) {
	_, _, ended, _, _ := launch(t, "broken", 30)
	assert.EqualError(t, wait(t, ended), "QEMU ended (exit status 1): qemu: disk0: no such disk")
}

// A machine that crashes with KVM is run without, and one that crashes without as well says so.
func TestAMachineWhoseKVMDoesNotRunItIsTranslated(t *testing.T) {
	_, _, ended, _, _ := launch(t, "short without KVM", 30)
	require.NoError(t, wait(t, ended))
	_, _, ended, _, _ = launch(t, "crash", 30)
	assert.ErrorContains(t, wait(t, ended), "QEMU crashed (signal: terminated")
}

// Whoever attaches sees the end of what was printed, types, and leaves without the machine.
func TestConsole(t *testing.T) {
	ctx, stop, ended, log, root := launch(t, "hears", 30)
	require.Eventually(t, func() bool { return log.String() == "login: " }, hung, 10*time.Millisecond)
	require.Eventually(t, func() bool { return CheckRunning(ctx, root) == nil }, hung, 10*time.Millisecond)

	in, keyboard := io.Pipe()
	screen := &buffer{}
	left := make(chan error, 1)
	go func() { left <- Attach(ctx, root, -1, in, screen) }()
	_, err := keyboard.Write([]byte("root\n"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return screen.String() == "login: ROOT\n" }, hung, 10*time.Millisecond, "%s", screen)
	_, err = keyboard.Write([]byte{'x', detach, 'y'})
	require.NoError(t, err)
	require.NoError(t, wait(t, left))
	require.Eventually(t, func() bool { return log.String() == "login: ROOT\nX" }, hung, 10*time.Millisecond, "%s", log)

	select {
	case err := <-ended:
		require.Fail(t, "it ended", "%v", err)
	default:
	}
	stop()
	require.NoError(t, wait(t, ended))
	assert.Error(t, Attach(t.Context(), root, -1, strings.NewReader(""), io.Discard))
}

func TestSearchDomains(t *testing.T) {
	const text = "search a.example\nnameserver 10.0.0.10\n# search b\nsearch default.svc.cluster.local svc.cluster.local\noptions ndots:5\n"
	assert.Equal(t, []string{"default.svc.cluster.local", "svc.cluster.local"}, searchDomains(text))
	assert.Empty(t, searchDomains("nameserver 10.0.0.10\n"))
}
