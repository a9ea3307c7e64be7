package fact

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func archive(t *testing.T, path, log string) { archiveFiles(t, path, "var/log/agent.log", log) }

// archiveFiles writes an archive of files, of each its name and what is in it.
func archiveFiles(t *testing.T, path string, files ...string) {
	f, err := os.Create(path)
	require.NoError(t, err)
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}))
		_, err = w.Write([]byte(files[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
}

func TestALogOfARamdiskIsReadWhole(t *testing.T) {
	r := &RamdiskLogs{Dir: t.TempDir()}
	assert.Empty(t, r.Times("node-1"))
	_, err := r.Text("node-1", "2026-03-04-05-06-07")
	assert.ErrorContains(t, err, "there is none of 2026-03-04-05-06-07 any more")

	path := filepath.Join(r.Dir, "u-1_metal3~node-1_2026-03-04-05-06-07.tar.gz")
	archiveFiles(t, path, "var/log/ironic-python-agent.log", "agent starts\nagent fails", "ps", "PID\n1\n", "dump", "\x00\x01", "df", "")
	archive(t, filepath.Join(r.Dir, "u-1_metal3~node-1_u-2_2026-03-05-05-06-07.tar.gz"), "later\n")
	archive(t, filepath.Join(r.Dir, "u-1_metal3~node-10_2026-03-05-05-06-07.tar.gz"), "of another one\n")
	assert.Equal(t, []string{"2026-03-05-05-06-07", "2026-03-04-05-06-07"}, r.Times("node-1"))
	text, err := r.Text("node-1", "2026-03-04-05-06-07")
	require.NoError(t, err)
	assert.Equal(t, "== ps\nPID\n1\n== df\n== var/log/ironic-python-agent.log\nagent starts\nagent fails\n", string(text))

	long := strings.Repeat("old\n", maxRamdiskFile/4) + strings.Repeat("new\n", maxRamdiskFile/4)
	archiveFiles(t, path, "dmesg", long)
	text, err = r.Text("node-1", "2026-03-04-05-06-07")
	require.NoError(t, err)
	assert.Equal(t, "== dmesg\n"+long[len(long)-maxRamdiskFile:], string(text), "the end of it")

	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, whole[:len(whole)/2], 0o600))
	_, err = r.Text("node-1", "2026-03-04-05-06-07")
	assert.ErrorContains(t, err, "unexpected EOF", "it is still being written, or torn")
}

func TestLastError(t *testing.T) {
	dir := t.TempDir()
	r := &RamdiskLogs{Dir: dir}
	assert.Empty(t, r.LastError("node-1"))
	archive(t, filepath.Join(dir, "u-1_metal3~node-1_2026-03-04-05-06-07.tar.gz"),
		"2026-03-04 05:06:00.000 200 INFO ironic_python_agent.agent [-] starts\n"+
			"2026-03-04 05:06:01.000 200 ERROR root [-] Command failed: prepare_image: No space left on device\n"+
			"2026-03-04 05:06:01.000 200 ERROR root [-] Traceback (most recent call last):\n"+
			"2026-03-04 05:06:01.000 200 ERROR root   File \"/usr/lib/python3/dist-packages/ironic_python_agent/extensions/base.py\", line 174, in run\n"+
			"2026-03-04 05:06:01.000 200 ERROR root OSError: [Errno 28] No space\n"+
			"2026-03-04 05:06:01.000 200 ERROR root \n")
	assert.Equal(t, "Command failed: prepare_image: No space left on device", r.LastError("node-1"))
	assert.Empty(t, r.LastError("node-2"))
	assert.Empty(t, r.LastError("node"), "another host whose name begins alike")

	archive(t, filepath.Join(dir, "u-1_metal3~node-1_a-cleaning-step_2026-03-05-00-00-00.tar.gz"), "nothing wrong\n")
	assert.Empty(t, r.LastError("node-1"), "an old error stands beside a newer log")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "u-1_metal3~node-1_2026-03-06-00-00-00.tar.gz"), []byte("torn"), 0o644))
	assert.Empty(t, r.LastError("node-1"))
}
