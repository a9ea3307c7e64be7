package ironic

import (
	"bytes"
	"io"
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

func TestRamdiskTailBeginsWhereAnotherRamdiskMay(t *testing.T) {
	trust, err := RamdiskTrust([]byte("root certificate\n"))
	require.NoError(t, err)
	for size, fill := range map[int64]int{0: 0, 10: 502, 511: 1, 512: 0, 1025: 511} {
		tail, err := RamdiskTail([]byte("root certificate\n"), size)
		require.NoError(t, err)
		assert.Equal(t, append(make([]byte, fill), trust...), tail, "after %d bytes", size)
	}
}
