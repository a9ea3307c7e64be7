package api_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// What was answered for is on the medium: data before the name, the name before the answer.
func TestWritesAreSyncedBeforeTheyAreAnswered(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("no strace; make deps installs it")
	}
	c := inFolder(t)
	l := newLab(t, c, nil)
	l.inProcess(c, blobs.MinPart)
	image, path := noise(12<<20, 41), base+"binary_images/synced"
	require.Equal(t, http.StatusCreated, l.announce("binary_images", sample("synced", len(image), nil)).status)

	log := filepath.Join(t.TempDir(), "trace")
	tracer := exec.Command(strace, "-f", "-y", "-e", "trace=fsync,fdatasync,renameat,renameat2,write", "-e", "signal=none", "-s", "1", "-o", log, "-p", strconv.Itoa(l.pid))
	printed, err := tracer.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, tracer.Start())
	attached := make([]byte, 200)
	n, _ := printed.Read(attached)
	if !strings.Contains(string(attached[:n]), "attached") {
		_ = tracer.Wait()
		t.Skipf("strace may not look at a process here: %s", attached[:n])
	}
	const at = 7<<20 + 1
	require.Equal(t, http.StatusNoContent, l.patch(path, 0, image[:at]).status)
	require.Equal(t, http.StatusNoContent, l.patch(path, at, image[at:]).status)
	require.NoError(t, tracer.Process.Signal(os.Interrupt))
	_ = tracer.Wait() // 130, by the signal
	text, err := os.ReadFile(log)
	require.NoError(t, err)

	// One letter per call: d octets synced, s state synced, n state named, o object named, f folder synced, a answer sent.
	var order strings.Builder
	for line := range strings.Lines(string(text)) {
		for _, call := range []struct {
			pattern string
			letter  byte
		}{
			{`sync\(\d+<[^>]*/uploads/put-`, 's'},
			{`sync\(\d+<[^>]*/uploads/[0-9a-f]+>`, 'd'},
			{`renameat.*/records/alpha/`, 'n'},
			{`renameat.*/binary/alpha/`, 'o'},
			{`fsync\(\d+<`, 'f'},
			{`write\(\d+<socket:`, 'a'},
		} {
			if regexp.MustCompile(call.pattern).MatchString(line) {
				order.WriteByte(call.letter)
				break
			}
		}
	}
	t.Log(order.String())
	assert.Regexp(t, `d.*d.*sf*nf+a+.*d.*d.*sf*nf+.*d.*of+sf*nf+a+$`, order.String(), "%s", text)
	assert.NotRegexp(t, `^[^d]*[no]`, order.String(), "no name without data that is synced")
}
