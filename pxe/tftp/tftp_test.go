package tftp_test

import (
	"bytes"
	"net"
	"testing"
	"time"

	peer "github.com/pin/tftp/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/tftp"
)

const patience = time.Minute // ends a hung run; nothing takes that long

// TestFirstAnswers is what the server says first, packet in, text out.
func TestFirstAnswers(t *testing.T) {
	_, server := serve(t, content(1000), nil)
	tests := []struct {
		name, request, answer string
	}{
		{"no options", "\x00\x01boot.efi\x00octet\x00", "DATA 1, 512 bytes"},
		{"a leading slash", "\x00\x01/boot.efi\x00octet\x00", "DATA 1, 512 bytes"},
		{"two of them", "\x00\x01//boot.efi\x00octet\x00", "DATA 1, 512 bytes"},
		{"the end mark of option 67 as a part of the name", "\x00\x01boot.efi\xff\x00octet\x00", "DATA 1, 512 bytes"},
		{"mode in capitals", "\x00\x01boot.efi\x00OCTET\x00", "DATA 1, 512 bytes"},
		{"all options", string(rrq("boot.efi", "tsize", "0", "blksize", "1024", "timeout", "3", "windowsize", "4")), "OACK tsize 1000 blksize 1024 timeout 3 windowsize 4"},
		{"options in capitals", string(rrq("boot.efi", "BLKSIZE", "1024")), "OACK blksize 1024"},
		{"an option twice", string(rrq("boot.efi", "blksize", "1024", "blksize", "600")), "OACK blksize 1024"},
		{"unknown options", string(rrq("boot.efi", "multicast", "", "x", "y")), "DATA 1, 512 bytes"},
		{"an option without a value", "\x00\x01boot.efi\x00octet\x00blksize\x00", "DATA 1, 512 bytes"},
		{"write", "\x00\x02boot.efi\x00octet\x00", "ERROR 2 this server is read only: it takes no files"},
		{"netascii", "\x00\x01boot.efi\x00netascii\x00", "ERROR 4 only mode octet is served"},
		{"no such file", "\x00\x01nothing\x00octet\x00", "ERROR 1 there is no such file here"},
		{"no name", "\x00\x01\x00octet\x00", "ERROR 2 the name is not one that can be served: it is empty"},
		{"no mode", "\x00\x01boot.efi\x00", "ERROR 4 the request has no terminated file name and mode"},
		{"no NUL", "\x00\x01boot.efi", "ERROR 4 the request has no terminated file name and mode"},
		{"DATA", "\x00\x03\x00\x01", "ERROR 5 no transfer was begun from this port"},
		{"one byte", "\x00", "ERROR 4 this is not a TFTP packet: it is shorter than 2 bytes"},
		{"another opcode", "\x12\x34abc", "ERROR 4 opcode 4660 is not one of TFTP"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := dial(t, server)
			c.send([]byte(test.request))
			assert.Equal(t, test.answer, show(c.receive(patience)))
		})
	}
	t.Run("an error is never answered", func(t *testing.T) {
		c := dial(t, server)
		c.send([]byte("\x00\x05\x00\x01no\x00"))
		assert.Nil(t, c.receive(200*time.Millisecond))
	})
}

// TestWholeFiles loads files of every critical length with every kind of block and window.
func TestWholeFiles(t *testing.T) {
	for _, size := range []int{0, 1, 511, 512, 513, 1468 * 4, 100_000} {
		data := content(size)
		_, server := serve(t, data, nil)
		for _, options := range [][]string{nil, {"blksize", "8"}, {"blksize", "1468"}, {"blksize", "1468", "windowsize", "4"}, {"windowsize", "16"}, {"blksize", "65464", "windowsize", "65535"}} {
			if size > 10_000 && len(options) == 2 && options[1] == "8" {
				continue // twelve thousand round trips prove nothing more
			}
			c := dial(t, server)
			for i := 0; i+1 < len(options); i += 2 {
				switch options[i] {
				case "blksize":
					c.block = map[string]int{"8": 8, "1468": 1468, "65464": 65464}[options[i+1]]
				case "windowsize":
					c.window = map[string]int{"4": 4, "16": 16, "65535": 1}[options[i+1]]
				}
			}
			assert.True(t, bytes.Equal(data, c.get(rrq("boot.efi", options...), nil)), "%d bytes, %v", size, options)
		}
	}
}

// TestOtherClient loads a file with a client that is not ours.
func TestOtherClient(t *testing.T) {
	data := content(300_000)
	_, server := serve(t, data, nil)
	c, err := peer.NewClient(server.String())
	require.NoError(t, err)
	c.SetBlockSize(1428)
	c.RequestTSize(true)
	from, err := c.Receive("boot.efi", "octet")
	require.NoError(t, err)
	size, ok := from.(peer.IncomingTransfer).Size()
	assert.True(t, ok)
	assert.EqualValues(t, len(data), size)
	var got bytes.Buffer
	_, err = from.WriteTo(&got)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(data, got.Bytes()))
}

// TestRefusedMachine: a machine that may not boot reads why on its screen.
func TestRefusedMachine(t *testing.T) {
	mac := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	o := one{pxe.Machine{MAC: mac}, pxe.Boot{Action: pxe.ActionRefuse, Reason: "two machines use this address"}}
	s, server := serve(t, content(10), func(s *tftp.Server) { s.Machines, s.Booter = o, o })
	c := dial(t, server)
	c.send(rrq("boot.efi"))
	assert.Equal(t, "ERROR 2 52:54:00:00:00:01 may not boot from here: two machines use this address", show(c.receive(patience)))
	kept, ok := s.Record.Get(mac)
	require.True(t, ok)
	assert.Contains(t, kept.Refused, "two machines use this address")
}

// TestWhatBootProgramsAskForFirstIsNoRefusal: that it is not here is no word on the machine's way.
func TestWhatBootProgramsAskForFirstIsNoRefusal(t *testing.T) {
	mac := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	o := one{pxe.Machine{MAC: mac}, pxe.Boot{Action: pxe.ActionInspect}}
	s, server := serve(t, content(10), func(s *tftp.Server) { s.Machines, s.Booter = o, o })
	c := dial(t, server)
	for _, name := range []string{
		"autoexec.ipxe", "/revocations_sku.efi", "revocations_sbat.efi", "shim_certificate_0.efi", "/grub/x86_64-efi/command.lst",
	} {
		c.send(rrq(name))
		assert.Contains(t, show(c.receive(patience)), "ERROR 1 ")
		_, noted := s.Record.Get(mac)
		assert.False(t, noted, name)
	}
	c.send(rrq("other.ipxe"))
	assert.Contains(t, show(c.receive(patience)), "ERROR 1 ")
	kept, noted := s.Record.Get(mac)
	require.True(t, noted)
	assert.NotEmpty(t, kept.Refused)
}

// TestRecordTellsBytes: the record says how far a machine came.
func TestRecordTellsBytes(t *testing.T) {
	mac := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	o := one{pxe.Machine{MAC: mac}, pxe.Boot{Action: pxe.ActionInspect}}
	s, server := serve(t, content(5000), func(s *tftp.Server) { s.Machines, s.Booter = o, o })
	c := dial(t, server)
	c.get(rrq("boot.efi"), nil)
	require.Eventually(t, func() bool {
		kept, ok := s.Record.Get(mac)
		return ok && kept.Last.Bytes == 5000 && kept.Last.Total == 5000 && kept.Last.Detail == "boot.efi"
	}, patience, time.Millisecond)
}

// TestSizeProbe: boot ROMs ask for the size, say error 8, and begin again from the same port.
func TestSizeProbe(t *testing.T) {
	data := content(2000)
	_, server := serve(t, data, nil)
	c := dial(t, server)
	c.send(rrq("boot.efi", "tsize", "0"))
	require.Equal(t, "OACK tsize 2000", show(c.receive(patience)))
	c.send([]byte("\x00\x05\x00\x08aborted\x00"))
	c.server = server
	c.block = 1456
	assert.True(t, bytes.Equal(data, c.get(rrq("boot.efi", "blksize", "1456"), nil)))
}
