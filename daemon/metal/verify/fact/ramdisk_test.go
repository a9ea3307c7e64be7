package fact

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func archive(t *testing.T, path, log string) {
	f, err := os.Create(path)
	require.NoError(t, err)
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "var/log/agent.log", Mode: 0o644, Size: int64(len(log)), Typeflag: tar.TypeReg}))
	_, err = w.Write([]byte(log))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
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
