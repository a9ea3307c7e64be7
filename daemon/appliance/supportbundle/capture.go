package supportbundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
)

// captures are the packets of machines' last boots, as files in pcap's format.
const captures = "/run/firstlight/captures/*.pcap"

// headers are the bytes of a packet that stay when there is a secret in it: Ethernet, IPv4, UDP.
const headers = 14 + 20 + 8

// collectCaptures adds the captures below captures/.
func (c *Collector) collectCaptures(context.Context) error {
	places := c.expandPaths([]string{captures})
	if len(places) == 0 {
		c.addIndexLine("captures", "missing: no machine has booted from the network")
	}

	for _, place := range places {
		name := "captures/" + filepath.Base(place)
		f, err := os.Open(c.path(place))
		if err != nil {
			c.addIndexLine(name, "missing: "+err.Error())
			continue
		}

		text, err := c.rewriteCapture(io.LimitReader(f, fileLimit))
		_ = f.Close()
		if err != nil {
			c.addIndexLine(name, "torn: "+err.Error())
		}

		if len(text) == 0 {
			continue
		}
		if c.total += int64(len(text)); c.total > totalLimit {
			c.addIndexLine(name, "left out: the bundle is full")
			continue
		}

		c.addIndexLine(name, fmt.Sprintf("%d bytes; tcpdump -r and Wireshark read it", len(text)))
		if err := c.put(name, text, time.Time{}); err != nil {
			return err
		}
	}

	return nil
}

// rewriteCapture writes a capture anew, packet by packet: nothing but packets comes into the bundle, and of one
// that holds a secret only the headers. What was read before an error is returned with it.
func (c *Collector) rewriteCapture(r io.Reader) ([]byte, error) {
	in, err := pcapgo.NewReader(r)
	if err != nil {
		return nil, err
	}

	var b bytes.Buffer
	out := pcapgo.NewWriter(&b)
	if err := out.WriteFileHeader(in.Snaplen(), in.LinkType()); err != nil {
		return nil, err
	}

	for {
		packet, info, err := in.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return b.Bytes(), nil
		}
		if err != nil {
			return b.Bytes(), err
		}

		if !bytes.Equal(c.hide.Redact(packet), packet) {
			packet = packet[:min(len(packet), headers)]
			info.CaptureLength = len(packet)
		}

		if err := out.WritePacket(info, packet); err != nil {
			return b.Bytes(), err
		}
	}
}
