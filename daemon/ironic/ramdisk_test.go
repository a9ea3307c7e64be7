package ironic

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/cpio"
)

func TestRamdiskTrustIsReadableAndTheSameEveryTime(t *testing.T) {
	a, err := RamdiskTrust([]byte("root certificate\n"))
	require.NoError(t, err)
	b, err := RamdiskTrust([]byte("root certificate\n"))
	require.NoError(t, err)
	assert.Equal(t, a, b)

	files := map[string]string{}
	require.NoError(t, cpio.ForEachRecord(cpio.Newc.Reader(bytes.NewReader(a)), func(r cpio.Record) error {
		text, err := io.ReadAll(io.NewSectionReader(r, 0, int64(r.FileSize)))
		files[r.Name] = string(text)
		return err
	}))
	assert.Equal(t, "root certificate\n", files["etc/ironic-python-agent.d/ca.pem"])
	assert.Contains(t, files["etc/ironic-python-agent.d/tls.conf"], "cafile = /etc/ironic-python-agent.d/ca.pem")
}

func TestRamdiskIsWrittenOnlyWhenItDiffers(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "initramfs"), filepath.Join(dir, "http", "initramfs")
	require.NoError(t, os.WriteFile(file, []byte("0123456789"), 0o644))
	require.NoError(t, WriteRamdisk(file, []byte("more"), out))
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, append(append([]byte("0123456789"), make([]byte, 502)...), "more"...), text, "the second part begins at a multiple of 512")

	before, err := os.Stat(out)
	require.NoError(t, err)
	require.NoError(t, WriteRamdisk(file, []byte("more"), out))
	after, err := os.Stat(out)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after), "it was written again")

	require.NoError(t, os.Truncate(out, 100)) // a torn one
	require.NoError(t, WriteRamdisk(file, []byte("more"), out))
	again, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, text, again)
	require.NoError(t, WriteRamdisk(file, []byte("else"), out))
	other, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.NotEqual(t, text, other)
}
