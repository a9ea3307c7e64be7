package sandbox_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// TestOpenSSHNoticesNoRotationOfTheHostKey: a client of OpenSSH that has logged in knows the next host key, forgets the
// former one, and keeps its sessions; one that never was told takes the appliance for an impostor.
func TestOpenSSHNoticesNoRotationOfTheHostKey(t *testing.T) {
	b := newCold(t, "hostkey")
	b.appliance = sandbox.StartAppliance(t, b.root, b.programs, b.name, b.dir)
	home := t.TempDir()
	key := filepath.Join(home, "id_ed25519")
	text, err := exec.CommandContext(b.ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput()
	require.NoError(t, err, string(text))
	public, err := os.ReadFile(key + ".pub")
	require.NoError(t, err)
	require.NoError(t, b.appliance.WriteSite(
		"name: sandbox\naccess: {sshKeys: ['"+strings.TrimSpace(string(public))+"']}\n"))
	b.run("systemctl", "start", "firstlightd")
	b.awaitHostKey()

	connect := func(known, update, words string) *exec.Cmd {
		return exec.CommandContext(b.ctx, "nsenter", "--target", strconv.Itoa(b.appliance.PID()), "--net", "--",
			"ssh", "-F", "none", "-i", key, "-o", "UserKnownHostsFile="+filepath.Join(home, known),
			"-o", "UpdateHostKeys="+update, "-o", "StrictHostKeyChecking=accept-new", "-o", "BatchMode=yes", "root@127.0.0.1", words)
	}
	must := func(cmd *exec.Cmd) {
		t.Helper()
		text, err := cmd.CombinedOutput()
		require.NoError(t, err, string(text))
	}
	read := func() string {
		text, err := os.ReadFile(filepath.Join(home, "known"))
		require.NoError(t, err)
		return string(text)
	}

	must(connect("never-told", "no", "true"))
	must(connect("known", "no", "true"))
	// OpenSSH heeds what it is told when it has known the host before, and asks for a proof while the session lasts.
	awaitNext := func(before string) {
		t.Helper()
		for text := before; text == before || strings.Count(text, "\n") != 2; text = read() {
			must(connect("known", "yes", "sleep 1"))
			require.NoError(t, b.ctx.Err(), "OpenSSH was not told of the next host key: %s", text)
		}
	}
	awaitNext(read())
	for range 2 {
		before := read()
		session := connect("known", "no", "echo begun; read _; echo ended")
		stdin, err := session.StdinPipe()
		require.NoError(t, err)
		stdout, err := session.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, session.Start())
		out := bufio.NewReader(stdout)
		begun, err := out.ReadString('\n')
		require.NoError(t, err)
		assert.Equal(t, "begun\n", begun)

		t.Log(b.run("firstlightd", "rotate", "host-key"))
		b.awaitHostKey()
		must(connect("known", "no", "true"))
		awaitNext(before) // another one, and the former is forgotten

		_, err = stdin.Write([]byte("\n"))
		require.NoError(t, err)
		rest, err := io.ReadAll(out)
		require.NoError(t, err)
		require.NoError(t, session.Wait())
		assert.Equal(t, "ended\n", string(rest), "a session did not stay")
	}

	text, err = connect("never-told", "no", "true").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(text), "REMOTE HOST IDENTIFICATION HAS CHANGED")
}

// awaitHostKey waits until sshd was started with the host keys that are on DATA.
func (b *box) awaitHostKey() {
	b.t.Helper()
	const loaded, shown = "/run/firstlight/ssh-host-keys", "ssh-keygen -y -f /var/lib/firstlight/ssh/ssh_host_ed25519_key"
	for {
		want, err := b.appliance.Run(b.ctx, "sh", "-c", shown)
		have, haveErr := b.appliance.Run(b.ctx, "cat", loaded)
		if err == nil && haveErr == nil && strings.HasPrefix(have, strings.Join(strings.Fields(want)[:2], " ")) {
			break
		}
		require.NoError(b.t, b.ctx.Err(), "sshd has other host keys than DATA")
		time.Sleep(200 * time.Millisecond)
	}
	_, err := b.appliance.AwaitStage(b.ctx, "ssh-ready", b.t.Output())
	require.NoError(b.t, err)
}
