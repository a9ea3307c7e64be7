package virtualrack

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/freeport"
	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/image/disk"
	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/accelerator"
)

// TestARackIsTriedOnADebianMachine: on a plain Debian machine, with control groups of version 2 alone, an ordinary user
// who logs in by SSH, and then root, bring an appliance of `firstlight try` up and its server into service. Each command
// is a session of its own: the user is told that his rack ends with it, and after loginctl enable-linger it does not.
// When it is removed, nothing of it is left.
func TestARackIsTriedOnADebianMachine(t *testing.T) {
	m := newTriedMachine(buildCommand(t, "qemu-all"))
	assert.Equal(t, "cgroup2fs\n", m.as("root", "stat --file-system --format %T /sys/fs/cgroup"))
	t.Run("walker", func(t *testing.T) {
		m := m
		m.t = t
		before := m.as("root", "sh /root/list-machine")
		const ends = "It ends when you have logged out; loginctl enable-linger walker keeps it"
		assert.Contains(t, m.show("walker", startRack+" --timeout 1ns || true"), ends)
		require.Empty(t, m.leftRack())

		m.as("root", "loginctl enable-linger walker")
		out := m.triesRack("walker")
		assert.NotContains(t, out, ends)
		goldentest.WriteBlock(t, "../../../docs/try.md", "try on a Debian machine",
			"$ firstlight try --image firstlight.img --servers 1 --dir rack\n"+withoutStages(out))
		m.removesRack("walker", before)
	})
	t.Run("root", func(t *testing.T) {
		m := m
		m.t = t
		m.as("root", "modprobe -a overlay squashfs loop")
		before := m.as("root", "sh /root/list-machine")
		m.triesRack("root")
		m.removesRack("root", before)
	})
}

const (
	startRack = "/media/firstlight try --image /media/firstlight.img --servers 1 --dir rack"
	inRack    = "/media/firstlight try --dir rack "
)

// triesRack starts the rack, looks into it when its server is in service, and returns what the start printed.
func (m triedMachine) triesRack(user string) string {
	m.t.Helper()
	out := m.show(user, startRack)
	assert.Contains(m.t, out, " Ready, node1 provisioned\n")
	hosts := m.show(user, "/media/firstlight try kubectl --dir rack get bmh -A --no-headers")
	assert.Equal(m.t, 1, strings.Count(hosts, " provisioned "))
	assert.Equal(m.t, "systemd\n", m.show(user, inRack+"shell ps -o comm= -p 1"))
	on := m.show("root", listRack)
	for _, part := range []string{"process namespace of ", "/firstlight-try\n", "\nfirstlight\n"} {
		assert.Contains(m.t, on, part)
	}
	return out
}

// removesRack removes the rack: what list-machine lists is what it was before.
func (m triedMachine) removesRack(user, before string) {
	m.t.Helper()
	m.show(user, inRack+"down --remove")
	assert.Empty(m.t, m.leftRack())
	left := differences(before, m.as("root", "sh /root/list-machine"), func(line string) bool {
		return isUnstable(line) || strings.HasPrefix(line, "session-") || strings.Contains(line, " /run/user/") // logins'
	})
	assert.Empty(m.t, left)
}

// listRack lists what there is of a rack while it is on: all its processes but those of the supervisor are in process
// namespaces of its own.
const listRack = `lsns --noheadings --type pid --output PID,COMMAND | grep -v '^ *1 ' | sed 's/^/process namespace of /'; ` +
	`find /sys/fs/cgroup -type d -name 'firstlight*'; ps -e -o comm= | grep '^firstlight'; true`

// leftRack waits for the end of a rack, and returns what is left of it.
func (m triedMachine) leftRack() string {
	m.t.Helper()
	return m.as("root", "for i in $(seq 300); do left=$("+listRack+"); "+
		`[ -n "$left" ] || break; sleep 1; done; printf %s "$left"`)
}

// withoutStages is what `firstlight try` printed, without the appliance's way to Ready and what to do then.
func withoutStages(out string) string {
	out, _, _ = strings.Cut(out, "Look inside:")
	var kept strings.Builder
	for line := range strings.Lines(out) {
		if !strings.Contains(line, " stages; ") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// triedMachine is a plain Debian machine in QEMU, on which nothing is installed. The command and the stick's image are
// on a disk that is mounted on /media.
type triedMachine struct {
	t         *testing.T
	key, port string
}

func newTriedMachine(c command) triedMachine {
	t := c.t
	t.Helper()
	dir := filepath.Dir(c.path)
	port, err := freeport.FindTCP()
	require.NoError(t, err)
	m := triedMachine{t: t, key: filepath.Join(dir, sshDir, keyFile), port: fmt.Sprint(port)}
	public, err := mintKey(filepath.Join(dir, sshDir))
	require.NoError(t, err)
	choice, err := accelerator.Choose(t.Context(), "")
	require.NoError(t, err)
	t.Log(choice)

	const mac = "52:54:00:f1:05:01"
	machine, err := lab.New(lab.Config{
		Name: "tried", Dir: filepath.Join(dir, "machine"), Accel: choice.Kind, MiB: 6 << 10,
		Disks: []lab.Disk{
			{Bus: lab.Virtio, Serial: "system", Quick: true, Image: c.debianDisk(debianMachine{
				suite: "trixie", kernel: "linux-image-cloud-amd64", mib: 16 << 10,
				packages: "uidmap,squashfs-tools,dbus-user-session",
			})},
			{Bus: lab.Virtio, Serial: "seed", Quick: true, Image: c.triedSeed(public, mac)},
		},
		Extra: []string{
			"-netdev", "user,id=own,restrict=on,hostfwd=tcp:127.0.0.1:" + m.port + "-:22",
			"-device", "virtio-net-pci,netdev=own,mac=" + mac,
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			ends, _ := m.ssh("root", "tail -n 50 /home/walker/rack/*.log /root/rack/*.log").CombinedOutput()
			t.Logf("the rack's logs:\n%s\nthe machine's console:\n%s", ends, machine.Console().Tail(100))
		}
		assert.NoError(t, machine.Close())
	})
	require.NoError(t, machine.Start(t.Context()))

	began := time.Now()
	for m.ssh("root", "true").Run() != nil {
		require.True(t, machine.IsRunning())
		require.Less(t, time.Since(began), lab.BootDeadline)
		time.Sleep(time.Second)
	}
	m.as("root", "cloud-init status --wait || [ $? = 2 ]") // 2: with warnings
	m.as("root", "mount -o ro LABEL="+seedLabel+" /media")
	t.Logf("the machine is there after %s", time.Since(began).Round(time.Second))
	return m
}

// triedSeed is a disk with the command and the stick's image, and what cloud-init is told: who may log in, root and an
// ordinary user, and the address of the only card.
func (c command) triedSeed(key, mac string) string {
	c.t.Helper()
	image := c.image()
	var bytes int64
	for _, file := range []string{image, c.path} {
		info, err := os.Stat(file)
		require.NoError(c.t, err)
		bytes += info.Size()
	}
	var network strings.Builder
	require.NoError(c.t, networkConfig.Execute(&network, map[string]any{
		"MAC": mac, "Address": "10.0.2.15/24", // to which QEMU forwards connections
	}))
	user := fmt.Sprintf("#cloud-config\ndisable_root: false\nssh_authorized_keys: [%q]\n"+
		"users: [{name: walker, ssh_authorized_keys: [%[1]q]}]\n", key)

	path := filepath.Join(filepath.Dir(c.path), seedImage)
	require.NoError(c.t, writeSeed(path, bytes, []disk.File{
		disk.HostFile("firstlight", c.path),
		disk.HostFile("firstlight.img", image),
		disk.TextFile("meta-data", []byte("instance-id: tried\n")),
		disk.TextFile("user-data", []byte(user)),
		disk.TextFile("network-config", []byte(network.String())),
	}))
	return path
}

// ssh is a session of its own of a user.
func (m triedMachine) ssh(user, command string) *exec.Cmd {
	return exec.CommandContext(m.t.Context(), "ssh", "-i", m.key, "-p", m.port, "-o", "IdentitiesOnly=yes",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
		"-o", "ConnectTimeout=60", user+"@127.0.0.1", command)
}

// as runs a command there as a user, and returns what it printed.
func (m triedMachine) as(user, command string) string {
	m.t.Helper()
	return m.runTo(io.Discard, user, command)
}

// show is as, with what was printed in the test's log as well.
func (m triedMachine) show(user, command string) string {
	m.t.Helper()
	m.t.Logf("%s$ %s", user, command)
	return m.runTo(m.t.Output(), user, command)
}

func (m triedMachine) runTo(to io.Writer, user, command string) string {
	m.t.Helper()
	var out, complaints bytes.Buffer
	cmd := m.ssh(user, command)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, to), &complaints
	require.NoError(m.t, cmd.Run(), "%s$ %s: %s%s", user, command, &out, &complaints)
	return out.String()
}
