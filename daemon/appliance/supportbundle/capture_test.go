package supportbundle

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// capture is a file with packets of these payloads.
func capture(t *testing.T, payloads ...string) string {
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	require.NoError(t, w.WriteFileHeader(1600, layers.LinkTypeEthernet))
	for i, p := range payloads {
		data := append(bytes.Repeat([]byte{0}, headers), p...)
		require.NoError(t, w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1e9, int64(i)), CaptureLength: len(data), Length: len(data) + 100}, data))
	}
	return b.String()
}

// payloads are what a capture holds, read by the library.
func payloads(t *testing.T, file string) (all []string) {
	r, err := pcapgo.NewReader(strings.NewReader(file))
	require.NoError(t, err)
	for {
		data, info, err := r.ReadPacketData()
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		assert.Greater(t, info.Length, info.CaptureLength)
		all = append(all, string(data[headers:]))
	}
}

func TestOfAPacketWithASecretTheHeadersStay(t *testing.T) {
	root := t.TempDir()
	secrets := minted(t, root)
	said := []string{"PXEClient:Arch:00007\x00\xff", "x\x00" + secrets[len(secrets)-2], "a=b password: hunter2", "snponly.efi\x00octet"}
	const last, before, torn = "run/firstlight/captures/52-54-00-00-00-01.pcap", "run/firstlight/captures/52-54-00-00-00-01.1.pcap", "run/firstlight/captures/52-54-00-00-00-02.pcap"
	write(t, root, last, capture(t, said...))
	write(t, root, before, capture(t, said[0]))
	write(t, root, torn, capture(t, said...)[:24+16+headers+len(said[0])+20])
	write(t, root, "run/firstlight/captures/52-54-00-00-00-03.pcap", "no capture "+strings.Join(secrets, " "))
	var out bytes.Buffer
	require.NoError(t, (&Collector{Root: root, Run: func(context.Context, string, ...string) ([]byte, error) { return nil, nil }}).Write(t.Context(), &out))
	files := unpacked(t, out.Bytes())
	noSecret(t, files, append(secrets, "hunter2"))
	assert.Equal(t, []string{said[0], "", "", said[3]}, payloads(t, files["captures/52-54-00-00-00-01.pcap"]))
	assert.Equal(t, said[:1], payloads(t, files["captures/52-54-00-00-00-01.1.pcap"]))
	assert.Equal(t, said[:1], payloads(t, files["captures/52-54-00-00-00-02.pcap"]))
	assert.NotContains(t, files, "captures/52-54-00-00-00-03.pcap")
	assert.Regexp(t, `captures/52-54-00-00-00-02.pcap +torn: `, files["INDEX"])
	assert.Regexp(t, `captures/52-54-00-00-00-03.pcap +torn: `, files["INDEX"])
}
