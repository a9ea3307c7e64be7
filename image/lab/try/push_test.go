package try_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os/exec"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/container"
)

// takesPrograms: programs that a developer pushes run in the place of the root's, the status says so, and they are taken
// away again. Servers in service are not written to meanwhile (u.writes, by the caller).
func (u user) takesPrograms() {
	u.t.Helper()
	began, before, pod := time.Now(), u.document(), u.podOf("bpa", "bpa-operator")
	u.dev("push", "bpa", "firstlightd", "--try")
	u.t.Logf("from the command to a daemon and an operator that run it: %.0f s", time.Since(began).Seconds())
	now := u.document()
	assert.True(u.t, now.Started.After(before.Started), "the daemon was not restarted")
	assert.NotEqual(u.t, pod, u.podOf("bpa", "bpa-operator"))
	require.Len(u.t, now.Pushed, 1)
	assert.Equal(u.t, []string{"bpa", "firstlightd"}, now.Pushed[0].Programs)
	assert.Contains(u.t, now.Notes, now.Pushed[0].Text)
	assert.Contains(u.t, u.must("shell", "firstlightd", "status"), "Note: This appliance runs bpa, firstlightd of ")
	pushed := u.fileOf("/usr/bin/firstlightd")
	assert.NotEqual(u.t, u.fileOf("/run/firstlight/root/firstlight/bin/firstlightd"), pushed)
	processes := []string{"[f]irstlightd run", "[f]irstlightd bpa"} // not the shell that asks
	for _, process := range processes {
		u.runs(process, func(file string) bool { return file == pushed })
	}

	u.takesProgramOfImage()
	out := u.dev("push", "--undo", "--try")
	assert.Contains(u.t, out, "runs its version's bpa, firstlightd, baremetal-operator again")
	assert.Empty(u.t, u.document().Pushed)
	assert.NotEqual(u.t, pushed, u.fileOf("/usr/bin/firstlightd"))
	for _, process := range processes {
		u.runs(process, func(file string) bool { return file != pushed })
	}
	assert.Contains(u.t, u.dev("push", "--undo", "--try"), "Nothing is pushed.")
}

// takesProgramOfImage: the program of an image whose files lie on the root. It is that of the image with a byte behind
// it, since compiling another one takes minutes.
func (u user) takesProgramOfImage() {
	u.t.Helper()
	const program = "/proc/$(pgrep --full --newest '^/baremetal-operator')/exe"
	before := u.digestOf(program)
	content, err := exec.CommandContext(u.t.Context(), u.program, "try", "--dir", u.dir, "shell", "sh", "-c", "cat "+program).Output()
	require.NoError(u.t, err)
	content = append(content, 0)
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	var compressed bytes.Buffer
	z, err := zstd.NewWriter(&compressed, zstd.WithEncoderLevel(zstd.SpeedFastest))
	require.NoError(u.t, err)
	_, err = z.Write(content)
	require.NoError(u.t, err)
	require.NoError(u.t, z.Close())

	pod := u.podOf("metal3", "baremetal-operator")
	cmd := container.Command(u.t.Context(), u.processes().Appliance.PID, "firstlightd", "push", "baremetal-operator",
		"--revision", "test", "--sha256", digest)
	cmd.Stdin = &compressed
	out, err := cmd.CombinedOutput()
	require.NoError(u.t, err, string(out))
	assert.NotEqual(u.t, before, digest)
	assert.Equal(u.t, digest, u.digestOf(program))
	assert.NotEqual(u.t, pod, u.podOf("metal3", "baremetal-operator"))
}

// dev runs firstlight dev in this tree.
func (u user) dev(args ...string) string {
	u.t.Helper()
	top, err := bench.FindTop()
	require.NoError(u.t, err)
	cmd := exec.CommandContext(u.t.Context(), u.program, append([]string{"dev"}, args...)...)
	cmd.Dir = top
	out, err := cmd.CombinedOutput()
	u.t.Logf("# firstlight dev %s\n%s", strings.Join(args, " "), out)
	require.NoError(u.t, err)
	return string(out)
}

// document is the appliance's status, as soon as its daemon answers.
func (u user) document() (d status.Document) {
	u.t.Helper()
	require.EventuallyWithT(u.t, func(c *assert.CollectT) {
		out, err := exec.CommandContext(u.t.Context(), u.program, "try", "--dir", u.dir, "shell", "firstlightd", "status", "-o",
			"json").Output()
		require.NoError(c, err)
		require.NoError(c, json.Unmarshal(out, &d))
	}, 10*time.Minute, time.Second)
	return d
}

// digestOf is the sha256 of a file of the appliance's, whose name its shell completes.
func (u user) digestOf(file string) string {
	u.t.Helper()
	digest, _, _ := strings.Cut(u.must("shell", "sh", "-c", "sha256sum "+file), " ")
	require.Len(u.t, digest, 64)
	return digest
}

// askFile prints what tells a file from another one of the same content: a program compiled from the tree of the image
// is the image's, byte by byte.
const askFile = "stat --dereference --format file=%d:%i "

// fileOf is which file of the appliance's a name leads to: its device and inode.
func (u user) fileOf(name string) string {
	u.t.Helper()
	file := u.must("shell", "sh", "-c", askFile+name)
	require.Regexp(u.t, `^file=\d+:\d+\n$`, file)
	return file
}

// runs waits until a process runs such a file: when the daemon is another one, it replaces the operator's pod.
func (u user) runs(process string, isSo func(file string) bool) {
	u.t.Helper()
	require.Eventually(u.t, func() bool {
		file, err := u.run("shell", "sh", "-c", askFile+"/proc/$(pgrep --full '"+process+"')/exe")
		return err == nil && strings.HasPrefix(file, "file=") && isSo(file)
	}, 10*time.Minute, time.Second, process)
}

// podOf is the UID of the only pod in a namespace whose name begins so. While the daemon replaces it, there is none or
// more than one.
func (u user) podOf(namespace, name string) (uid string) {
	u.t.Helper()
	require.Eventually(u.t, func() bool {
		out, err := u.run("kubectl", "get", "pods", "--namespace", namespace, "--no-headers", "--output",
			"custom-columns=N:.metadata.name,U:.metadata.uid")
		found := 0
		for line := range strings.Lines(out) {
			if fields := strings.Fields(line); len(fields) == 2 && strings.HasPrefix(fields[0], name) {
				found, uid = found+1, fields[1]
			}
		}
		return err == nil && found == 1
	}, 10*time.Minute, time.Second, name)
	return uid
}
