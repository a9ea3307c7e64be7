package try_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/try"
)

// walker is an ordinary user whom only the commands of one test know: in their mount namespaces, the files that name
// users and subordinate IDs are others.
type walker struct {
	id, firstID int
	dir         string   // with his files
	groups      []string // control groups that were given to him
}

// entry is a script that becomes the user: its words are his groups, a word "--", and a command.
const entry = `set -eu
mount --bind "$FILES/passwd" /etc/passwd
mount --bind "$FILES/ids" /etc/subuid
mount --bind "$FILES/ids" /etc/subgid
mount --bind "$IMAGE" "$FILES/image"
while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done
shift
exec setpriv --reuid "$ID" --regid "$ID" --clear-groups -- env HOME="$FILES/home" "$@"`

// newWalker makes the user, with what an administrator gives one: subordinate IDs and control groups.
func newWalker(t *testing.T) walker {
	t.Helper()
	w := walker{id: 54321, firstID: 700000, dir: t.TempDir()}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("%v: needs the package uidmap", err)
		}
	}

	require.NoError(t, os.Chmod(filepath.Dir(w.dir), 0o711)) // that of all directories of the test
	users, err := os.ReadFile("/etc/passwd")
	require.NoError(t, err)
	for name, text := range map[string]string{
		"passwd": fmt.Sprintf("%swalker:x:%d:%[2]d::/:/bin/sh\n", users, w.id),
		"ids":    fmt.Sprintf("walker:%d:65536\n", w.firstID),
		"image":  "",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o644))
	}
	require.NoError(t, os.Mkdir(filepath.Join(w.dir, "home"), 0o755))
	require.NoError(t, os.Chown(filepath.Join(w.dir, "home"), w.id, w.id))

	const name = "firstlight-walker"
	parents, isOnlyUnified, err := container.OwnCgroups()
	require.NoError(t, err)
	if isOnlyUnified {
		t.Skip("control groups are of version 2 alone: those of an ordinary user come from his systemd")
	}
	t.Cleanup(func() { assert.NoError(t, container.RemoveCgroups(name, parents...)) })
	for _, parent := range parents {
		group := filepath.Join(parent, name)
		require.NoError(t, os.MkdirAll(group, 0o755))
		for _, inherit := range []string{"cpuset.cpus", "cpuset.mems"} {
			if all, err := os.ReadFile(filepath.Join(parent, inherit)); err == nil {
				require.NoError(t, os.WriteFile(filepath.Join(group, inherit), all, 0))
			}
		}
		for _, own := range []string{group, group + "/cgroup.procs", group + "/tasks"} {
			require.NoError(t, os.Chown(own, w.id, w.id))
		}
		w.groups = append(w.groups, group)
	}
	return w
}

// prefix is the command line by which he runs a command that reads the image.
func (w walker) prefix(image string) []string {
	words := []string{"env", "FILES=" + w.dir, "IMAGE=" + image, fmt.Sprintf("ID=%d", w.id), "unshare", "--mount", "sh", "-c", entry, "sh"}
	return append(append(words, w.groups...), "--")
}

// processes are those of him and of his subordinate IDs.
func (w walker) processes(t *testing.T) []string {
	out, err := exec.Command("ps", "-eo", "uid=,args=").Output()
	require.NoError(t, err)
	var found []string
	for line := range strings.Lines(string(out)) {
		id, err := strconv.Atoi(strings.Fields(line)[0])
		require.NoError(t, err)
		if id == w.id || id >= w.firstID && id < w.firstID+65536 {
			found = append(found, line)
		}
	}
	return found
}

// leavesNothing waits until nothing of him runs on this machine, and nothing is left that a rack may leave.
func (w walker) leavesNothing(t *testing.T, machine machineMounts, before machineParts) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Empty(c, w.processes(t))
		assert.Equal(c, before, machine.look(t))
	}, 2*time.Minute, 100*time.Millisecond, "the rack left something")
}

// TestARackIsTriedWithoutRoot: an ordinary user brings an appliance up and a server into service in a user namespace. The
// death of its supervisor, and its end, leave nothing.
func TestARackIsTriedWithoutRoot(t *testing.T) {
	image := sandbox.RequireRoot(t)
	programs := t.TempDir()
	program, err := sandbox.Build(t.Context(), ".", "./cmd/firstlight", programs)
	require.NoError(t, err)
	daemon, err := sandbox.Build(t.Context(), ".", "./cmd/firstlightd", programs)
	require.NoError(t, err)
	w := newWalker(t)
	machine := newMachineMounts(t)
	u := user{t, program, filepath.Join(w.dir, "home", "rack"), append(machine.prefix(), w.prefix(image)...)}
	t.Cleanup(func() {
		if t.Failed() {
			u.logEnds()
		}
		_, err := try.Rack{Dir: u.dir}.TearDown()
		assert.NoError(t, err)
	})

	before := machine.look(t)
	began := time.Now()
	up := []string{"--image", filepath.Join(w.dir, "image"), "--daemon", daemon, "--servers", "1"}
	out := u.must(append(up, "--timeout", "8m")...)
	t.Logf("from the command to a provisioned server: %.0f s", time.Since(began).Seconds())
	goldentest.WriteBlock(t, "../../../docs/try.md", "try without root", "$ bin/firstlight try --servers 1\n"+u.inTree(out))
	assert.Contains(t, out, "Unpacking the image's root")
	assert.Equal(t, 1, strings.Count(u.must("kubectl", "get", "bmh", "-A", "--no-headers"), " provisioned "))
	assert.Equal(t, "0\n", u.must("shell", "id", "-u"))
	assert.Equal(t, "systemd\n", u.must("shell", "ps", "-o", "comm=", "-p", "1"))
	u.leavesKernelAlone()
	_, err = u.run("shell", "mknod", "/dev/disk", "b", "8", "0")
	assert.Error(t, err)
	u.seesPage()
	assert.Equal(t, before, machine.look(t), "nothing of the rack is among this machine's own mounts and links")

	// No process of the rack has rights or IDs of this machine.
	for _, pid := range []int{u.processes().Supervisor.PID, u.processes().Appliance.PID} {
		info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
		require.NoError(t, err)
		assert.EqualValues(t, w.id, info.Sys().(*syscall.Stat_t).Uid)
	}
	_, err = user{t, program, u.dir, nil}.run("status")
	assert.Error(t, err, "root is not its user")

	require.NoError(t, u.processes().Supervisor.Signal(syscall.SIGKILL))
	w.leavesNothing(t, machine, before)
	_, err = u.run("--timeout", "1ns") // it is on again, and nobody waits until it is Ready
	assert.Error(t, err)
	u.processes()
	u.must("down", "--remove")
	assert.NoDirExists(t, u.dir)
	w.leavesNothing(t, machine, before)
	for _, group := range w.groups {
		assert.Empty(t, container.FindCgroups("firstlight-try", group))
	}
}
