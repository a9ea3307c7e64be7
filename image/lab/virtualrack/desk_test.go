package virtualrack

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/lab/vswitch"
)

// superviseDir makes the test's own program a supervisor.
const superviseDir = "DESK_TEST_SUPERVISE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(superviseDir); dir != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) // as the command does
		defer stop()
		if err := Supervise(ctx, dir, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fakes are programs that look like those of a rack and only wait.
var fakes = map[string]string{
	"qemu-system-x86_64": `case "$*" in *serial=system*)
	echo "Linux version 6"; echo "firstlight lab: installing"; echo "firstlight lab: not installed";;
*"-name appliance"*)
	echo "Firstlight 0.1.0: looking for the stick"; echo "Welcome to Debian"; echo "firstlight: data-mounted: ok, 0.1 s";; *)
	[ ! -e no-memory ] || { echo "qemu: cannot set up guest memory" >&2; exit 1; }
	echo "a node";; esac
exec sleep 1000`,
	"qemu-img": `[ ! -e no-room ] || { echo "no room" >&2; exit 1; }
for last; do :; done; case $last in *[!0-9]*) : >"$last";; *) for f; do case $f in *.qcow2) : >"$f";; esac; done;; esac`,
	"qemu-io":  `echo "$*" >>qemu-io.log`,
	"ipmi_sim": `exec sleep 1000`,
	"curl":     ``, "ssh": ``,
}

// newRack is a directory with a rack of fakes, not started.
func newRack(t *testing.T) Client { return newRackOf(t, DefaultOrder()) }

func newRackOf(t *testing.T, o Order) Client { return newRackOfProgram(t, o, "/bin/firstlight") }

// newRackOfProgram is one whose command is program.
func newRackOfProgram(t *testing.T, o Order, program string) Client {
	bin := t.TempDir()
	for name, script := range fakes {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	o.Image = filepath.Join(bin, "stick.img")
	readme := disk.File{Path: "README.txt", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("hello")), nil }}
	require.NoError(t, disk.Write(t.Context(), o.Image, disk.Layout{GUID: "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c100", Partitions: []disk.Partition{{
		Name: "SITE", Type: gpt.TypeBasicData, GUID: "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c103", Size: 34 << 20,
		Content: disk.FAT{Label: "SITE", Files: []disk.File{readme}},
	}}}))
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 25), "rack") // longer than a socket's name may be
	require.NoError(t, writeRack(dir, program, o))                         // whatever memory there is
	t.Setenv(superviseDir, dir)
	t.Cleanup(func() {
		_, err := TearDown(dir)
		assert.NoError(t, err)
	})
	return Client{Dir: dir}
}

func (c Client) mustStart(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(t, start(ctx, c.Dir, os.Args[0]))
}

// becomes waits until a machine is as told.
func (c Client) becomes(t *testing.T, machine int, what string, is func(Machine) bool) Machine {
	t.Helper()
	var last Machine
	require.Eventually(t, func() bool {
		s, err := c.Status(t.Context())
		require.NoError(t, err)
		last = s.Machines[machine]
		return is(last)
	}, 2*time.Minute, 50*time.Millisecond, what)
	return last
}

func (c Client) processes(t *testing.T) runningFileDoc {
	var r runningFileDoc
	require.NoError(t, readJSON(filepath.Join(c.Dir, runningFile), &r))
	return r
}

func TestARackLives(t *testing.T) {
	c := newRack(t)
	_, err := c.Status(t.Context())
	require.ErrorIs(t, err, NotRunning)
	// A lock that the caller holds in a way that children inherit, as flock(1) does.
	lock, err := os.Create(filepath.Join(t.TempDir(), "lock"))
	require.NoError(t, err)
	defer lock.Close()
	_, err = unix.FcntlInt(lock.Fd(), unix.F_SETFD, 0)
	require.NoError(t, err)
	c.mustStart(t)
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.processes(t).Supervisor.PID))
	require.NoError(t, err)
	require.NotEmpty(t, open)
	for _, fd := range open {
		file, _ := os.Readlink(fd) // it may be closed by now
		assert.NotEqual(t, lock.Name(), file, "the rack keeps the caller's lock")
	}
	m := c.becomes(t, 0, "the appliance is followed", func(m Machine) bool { return m.Phase == "data-mounted" })
	assert.True(t, m.On)
	assert.Equal(t, "firstlight: data-mounted: ok, 0.1 s", m.Last)
	assert.Contains(t, m.Command, "serial=stick")
	orders, err := os.ReadFile(filepath.Join(c.Dir, "qemu-io.log"))
	require.NoError(t, err)
	assert.Equal(t, "-f qcow2 -c write -q -s machines/appliance/site.fat 1048576 35651584 machines/appliance/disk0.qcow2\n", string(orders))
	node := c.becomes(t, 1, "a node waits", func(m Machine) bool { return m.Phase == PhaseWaiting })
	assert.False(t, node.On)

	fresh, err := Start(t.Context(), c.Dir, Run{}, os.Args[0])
	require.NoError(t, err)
	assert.False(t, fresh, "it is on already")

	require.NoError(t, c.Press(t.Context(), "node-1", "on"))
	c.becomes(t, 1, "a node is on", func(m Machine) bool { return m.On && m.Last == "a node" })
	assert.ErrorContains(t, c.Press(t.Context(), "node-1", "eject"), `button "eject" is not there`)
	assert.ErrorContains(t, c.Press(t.Context(), "node-9", "on"), "it has appliance, node-1, node-2")

	fault := vswitch.Fault{Loss: 0.1, Delay: time.Millisecond}
	require.NoError(t, c.SetFault(t.Context(), "node-1", Cables{}, fault))
	c.becomes(t, 1, "its cable is bad", func(m Machine) bool { return m.Cables[0].Fault == fault })
	assert.ErrorContains(t, c.SetFault(t.Context(), "node-1", Cables{Network: bmcs}, fault), "has no cable to network bmc")
	assert.ErrorContains(t, c.SetFault(t.Context(), "node-1", Cables{}, vswitch.Fault{Loss: 10}), "want 0 to 1")

	_, err = c.Dial(t.Context(), "node-3", "22")
	assert.ErrorContains(t, err, "not in the rack")
	_, err = c.Dial(t.Context(), "8.8.8.8", "53")
	assert.ErrorContains(t, err, "in none of the rack's networks")

	// The supervisor is killed as nothing can be caught: the rack is off, not half there.
	r := c.processes(t)
	require.Len(t, r.Children, 4) // two machines, two BMCs
	require.NoError(t, r.Supervisor.Signal(syscall.SIGKILL))
	for _, p := range r.Children {
		assert.Eventually(t, func() bool { return !p.Alive() }, time.Minute, 10*time.Millisecond, p.Name)
	}
	_, err = c.Status(t.Context())
	assert.ErrorIs(t, err, NotRunning)
	alive := time.Unix(time.Now().Unix()+1, 0) // later than every event, earlier than the next start
	require.NoError(t, os.Chtimes(filepath.Join(c.Dir, lockFile), alive, alive))
	time.Sleep(time.Until(alive.Add(100 * time.Millisecond)))

	// The next one puts the power back to what was on, and writes no second stick.
	c.mustStart(t)
	c.becomes(t, 0, "the appliance is on again", func(m Machine) bool { return m.On })
	c.becomes(t, 1, "the node is on again", func(m Machine) bool { return m.On })
	c.becomes(t, 2, "the other one is not", func(m Machine) bool { return !m.On && m.Phase == PhaseWaiting })
	again, err := os.ReadFile(filepath.Join(c.Dir, "qemu-io.log"))
	require.NoError(t, err)
	assert.Equal(t, orders, again)
	require.NoError(t, c.Press(t.Context(), "appliance", "off"))
	cut, err := c.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, PhaseOff, cut.Machines[0].Phase, "what was before the button was pressed")

	r = c.processes(t)
	ended, err := TearDown(c.Dir)
	require.NoError(t, err)
	assert.NotEmpty(t, ended)
	for _, p := range append(r.Children, startedProcess{"supervisor", r.Supervisor}) {
		assert.False(t, p.Alive(), p.Name)
	}
	events, err := ReadEvents(c.Dir)
	require.NoError(t, err)
	assert.Equal(t, "appliance", events[0].Machine)
	assert.Equal(t, []string{PhaseWaiting, PhaseOff, PhaseWaiting, PhaseOff}, phasesOf(events, "node-1"))
	for _, e := range events {
		if e.Phase == PhaseOff {
			assert.Equal(t, alive.Unix(), e.At.Unix(), "the killed supervisor's last sign of life")
			break
		}
	}
	require.NoError(t, Remove(c.Dir))
}

func phasesOf(events []Event, machine string) (all []string) {
	for _, e := range events {
		if e.Machine == machine {
			all = append(all, e.Phase)
		}
	}
	return all
}

func TestAnotherRackIsNotOverwritten(t *testing.T) {
	c := newRack(t)
	o, ok, err := ReadOrder(c.Dir)
	require.NoError(t, err)
	require.True(t, ok)
	site, err := os.ReadFile(filepath.Join(c.Dir, siteFile))
	require.NoError(t, err)
	require.NoError(t, Create(c.Dir, "/bin/firstlight", o))
	assert.False(t, IsOutdated(c.Dir, o))
	old, err := os.ReadFile(o.Image)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(o.Image+".new", old[:len(old)-512], 0o644))
	require.NoError(t, os.Rename(o.Image+".new", o.Image)) // as a build does
	assert.True(t, IsOutdated(c.Dir, o))
	own, err := os.ReadFile(filepath.Join(c.Dir, stickImage))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(old, own), "the stick's overlay has lost what lies below it")

	other := o
	other.Nodes = 3
	assert.ErrorContains(t, Create(c.Dir, "/bin/firstlight", other), "nodes is 2, asked is 3; `firstlight lab down --remove`")
	now, err := os.ReadFile(filepath.Join(c.Dir, siteFile))
	require.NoError(t, err)
	assert.Equal(t, string(site), string(now))
	other = o
	other.Cluster, other.Capture = false, true
	assert.ErrorContains(t, Create(c.Dir, "/bin/firstlight", other), ": cluster is true, asked is false; `firstlight lab down --remove`")
	other = o
	other.BMC = AllRedfish
	assert.ErrorContains(t, Create(c.Dir, "/bin/firstlight", other), ": BMCs is ipmi, asked is redfish; `firstlight lab down --remove`")
	have, _, err := ReadOrder(c.Dir)
	require.NoError(t, err)
	assert.False(t, have.Capture, "what is refused changes nothing")
	o.Capture = true
	require.NoError(t, Create(c.Dir, "/bin/firstlight", o))
	have, _, err = ReadOrder(c.Dir)
	require.NoError(t, err)
	assert.Equal(t, o, have)
	o.Capture = false
	c.mustStart(t)
	assert.ErrorContains(t, Create(c.Dir, "/bin/firstlight", o), "is on; `firstlight lab down` first")
	captured, err := filepath.Glob(filepath.Join(c.Dir, "*.pcap"))
	require.NoError(t, err)
	assert.Len(t, captured, 2)
	for _, path := range captured {
		assert.True(t, isRackFile(filepath.Base(path)), path)
	}
	o.Image = "/nonexistent"
	assert.ErrorContains(t, Create(t.TempDir(), "/bin/firstlight", o), "`firstlight build` makes the image")
}

func TestStartSaysWhy(t *testing.T) {
	c := newRack(t)
	require.NoError(t, os.Remove(filepath.Join(c.Dir, siteFile)))
	err := start(t.Context(), c.Dir, os.Args[0])
	assert.ErrorContains(t, err, "its supervisor ended")
	assert.ErrorContains(t, err, "open site.yaml: no such file")
	assert.NoFileExists(t, filepath.Join(c.Dir, runningFile))
	t.Setenv("PATH", "")
	_, err = Start(t.Context(), c.Dir, Run{}, os.Args[0])
	assert.ErrorContains(t, err, "`scripts/deps lab` installs it (package qemu-system-x86)")
}

// TestAMachineThatDies: no memory for a node's QEMU, no room for its disk, and a kernel that takes
// the appliance's memory back.
func TestAMachineThatDies(t *testing.T) {
	c := newRack(t)
	trouble := func(name string) string { return filepath.Join(c.Dir, name) }
	const noMemory = "QEMU has ended: exit status 1: qemu: cannot set up guest memory"
	c.mustStart(t)
	c.becomes(t, 0, "the appliance is on", func(m Machine) bool { return m.On })
	require.NoError(t, os.WriteFile(trouble("no-memory"), nil, 0o600))
	require.NoError(t, c.Press(t.Context(), "node-1", "on"))
	m := c.becomes(t, 1, "its QEMU died", func(m Machine) bool { return m.Why == noMemory })
	assert.False(t, m.On)
	assert.Contains(t, m.Next, "`firstlight lab power node-1 on`")
	s, err := c.Status(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"node-1: " + noMemory}, s.Faults)
	assert.False(t, s.Over, "the rest of the rack continues")

	require.NoError(t, os.Remove(trouble("no-memory")))
	require.NoError(t, os.WriteFile(trouble("no-room"), nil, 0o600))
	order := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		dir, err := os.Open(filepath.Join(c.Dir, machinesDir, "node-2", "bmc"))
		require.NoError(t, err)
		defer dir.Close()
		return net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/buttons", dir.Fd()))
	}}}
	answer, err := order.PostForm("http://bmc", url.Values{"do": {"set power 1"}})
	require.NoError(t, err)
	answer.Body.Close()
	assert.Equal(t, http.StatusInternalServerError, answer.StatusCode)
	c.becomes(t, 2, "its BMC's order failed", func(m Machine) bool { return strings.Contains(m.Why, "no room") })
	log, err := os.ReadFile(filepath.Join(c.Dir, supervisorLog))
	require.NoError(t, err)
	assert.Contains(t, string(log), "node-1: "+noMemory)
	assert.Contains(t, string(log), "BMC of node-2: power 1: start machine node-2: prepare disk")
	require.NoError(t, c.Press(t.Context(), "node-2", "off"))
	c.becomes(t, 2, "nobody wants it on any more", func(m Machine) bool { return m.Why == "" })

	for _, p := range c.processes(t).Children {
		if p.Name == Appliance {
			require.NoError(t, p.Signal(syscall.SIGKILL))
		}
	}
	c.becomes(t, 0, "the appliance died", func(m Machine) bool { return m.Phase == PhaseOff && m.Why != "" })
	s, err = c.Status(t.Context())
	require.NoError(t, err)
	assert.True(t, s.Over && s.Failed && s.Dead)
	assert.Equal(t, "appliance: QEMU has ended: signal: killed: as the kernel does where memory is short", s.Text)

	// What died was not switched off: the next start starts it again, or says why it does not.
	_, err = TearDown(c.Dir)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(c.Dir, machinesDir, "node-1", "disk0.qcow2")))
	err = start(t.Context(), c.Dir, os.Args[0])
	assert.ErrorContains(t, err, "start machine node-1: prepare disk")
	require.NoError(t, os.Remove(trouble("no-room")))
	c.mustStart(t)
	c.becomes(t, 0, "the appliance is on again", func(m Machine) bool { return m.On })
	m = c.becomes(t, 1, "the node is on again", func(m Machine) bool { return m.On })
	assert.Empty(t, m.Why)
}

func TestAnswerName(t *testing.T) {
	ask := func(name string, kind dnsmessage.Type) dnsmessage.Message {
		q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}}}
		query, err := q.Pack()
		require.NoError(t, err)
		var m dnsmessage.Message
		require.NoError(t, m.Unpack(answerName(query, netip.MustParseAddr("172.24.0.253"))))
		assert.Equal(t, uint16(7), m.ID)
		return m
	}
	m := ask("Gateway.lab.", dnsmessage.TypeA)
	require.Len(t, m.Answers, 1)
	assert.Equal(t, [4]byte{172, 24, 0, 253}, m.Answers[0].Body.(*dnsmessage.AResource).A)
	assert.Empty(t, ask("lab.", dnsmessage.TypeAAAA).Answers)
	assert.Equal(t, dnsmessage.RCodeNameError, ask("example.org.", dnsmessage.TypeA).RCode)
	assert.Nil(t, answerName([]byte("nonsense"), netip.Addr{}))
}

func FuzzAnswerName(f *testing.F) {
	f.Add([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 'l', 'a', 'b', 0, 0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, query []byte) {
		if a := answerName(query, netip.MustParseAddr("172.24.0.253")); a != nil {
			assert.True(t, bytes.Equal(a[:2], query[:2]))
		}
	})
}

func TestJoin(t *testing.T) {
	far, farEnd := net.Pipe()
	near, nearEnd := net.Pipe()
	done := make(chan struct{})
	go func() { join(far, near, near); close(done) }()
	go func() { _, _ = io.WriteString(nearEnd, "ping") }()
	buf := make([]byte, 4)
	_, err := io.ReadFull(farEnd, buf)
	require.NoError(t, err)
	assert.Equal(t, "ping", string(buf))
	farEnd.Close()
	<-done
	_, err = nearEnd.Read(buf)
	assert.ErrorIs(t, err, io.EOF)
}
