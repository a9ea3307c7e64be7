package tftp_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/tftp"
)

// TestFault11NamesCannotEscape: every name that could lead out of the served directory,
// and every option that could hurt.
func TestFault11NamesCannotEscape(t *testing.T) {
	top := t.TempDir()
	inside := filepath.Join(top, "inside")
	require.NoError(t, os.MkdirAll(filepath.Join(inside, "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(top, "secret"), []byte("secret"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(inside, "boot.efi"), []byte("good"), 0o644))
	require.NoError(t, os.Symlink("../secret", filepath.Join(inside, "relative")))
	require.NoError(t, os.Symlink(filepath.Join(top, "secret"), filepath.Join(inside, "absolute")))
	require.NoError(t, os.Symlink("boot.efi", filepath.Join(inside, "link")))
	files, err := bootfile.OpenSet([]string{inside}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, files.Close()) })
	files.AddText("grub/grub.cfg", []byte("text"))
	_, server := serve(t, nil, func(s *tftp.Server) { s.Files = files })
	for name, want := range map[string]string{
		"link":                                "DATA 1, 4 bytes",
		"/grub/grub.cfg":                      "DATA 1, 4 bytes",
		"grub/boot.efi":                       "ERROR 1 there is no such file here",
		"grub/../boot.efi":                    "ERROR 2 the name is not one that can be served: it has \"..\" in it",
		"../secret":                           "ERROR 2 the name is not one that can be served: it has \"..\" in it",
		"sub/../../secret":                    "ERROR 2 the name is not one that can be served: it has \"..\" in it",
		"..\\secret":                          "ERROR 2 the name is not one that can be served: it has control characters, backslashes or broken text in it",
		filepath.Join(top, "secret"):          "ERROR 1 there is no such file here",
		"/" + filepath.Join(inside, "x"):      "ERROR 1 there is no such file here",
		"relative":                            "ERROR 1 there is no such file here",
		"absolute":                            "ERROR 1 there is no such file here",
		"%2e%2e/secret":                       "ERROR 1 there is no such file here",
		"sub":                                 "ERROR 2 this is not a regular file",
		strings.Repeat("n", 300):              "ERROR 2 the name is not one that can be served: it is longer than 255 bytes",
		"a\nb":                                "ERROR 2 the name is not one that can be served: it has control characters, backslashes or broken text in it",
		"boot.efi\x00octet\x00blksize\x000":   "DATA 1, 4 bytes",
		"boot.efi\x00octet\x00blksize\x00-1":  "DATA 1, 4 bytes",
		"boot.efi\x00octet\x00blksize\x001e9": "DATA 1, 4 bytes",
		"boot.efi\x00octet\x00timeout\x00256": "DATA 1, 4 bytes",
		"boot.efi\x00octet\x00tsize\x00" + strings.Repeat("9", 400): "DATA 1, 4 bytes",
	} {
		c := dial(t, server)
		c.send(rrq(name))
		got := show(c.receive(patience))
		assert.Equal(t, want, got, "%q", name)
		assert.NotContains(t, got, top, "an error shows a path of the host")
	}
	c := dial(t, server)
	c.send(rrq("boot.efi", "windowsize", "65535", "blksize", "65464"))
	assert.Equal(t, "OACK windowsize 1 blksize 65464", show(c.receive(patience)), "the window is cut to what one transfer may hold")
	c = dial(t, server)
	c.send(rrq(strings.Repeat("n", 60_000)))
	assert.Equal(t, "ERROR 4 the request is longer than 1024 bytes", show(c.receive(patience)))
	c = dial(t, server)
	c.send(append([]byte{0, 1}, bytes.Repeat([]byte("n"), 60_000)...))
	assert.Equal(t, "ERROR 4 the request is longer than 1024 bytes", show(c.receive(patience)))
	assert.Equal(t, []byte("good"), dial(t, server).get(rrq("boot.efi"), nil), "and the server still serves")
}

// TestFault12WritesAreRefused: no write request opens, makes or changes a file.
func TestFault12WritesAreRefused(t *testing.T) {
	dir := t.TempDir()
	files, err := bootfile.OpenSet([]string{dir}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, files.Close()) })
	_, server := serve(t, nil, func(s *tftp.Server) { s.Files = files })
	for _, name := range []string{"new", "../new", "/tmp/new", ""} {
		c := dial(t, server)
		c.send([]byte("\x00\x02" + name + "\x00octet\x00"))
		assert.Equal(t, "ERROR 2 this server is read only: it takes no files", show(c.receive(patience)))
		c.send([]byte("\x00\x03\x00\x01data")) // and one that goes on nevertheless
		assert.Equal(t, "ERROR 5 no transfer was begun from this port", show(c.receive(patience)))
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestFault13SilentClients: a thousand clients ask and never answer. What they hold stays
// below the limits, a real client is served in the midst of them, and all is given back.
func TestFault13SilentClients(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a thousand silent clients are given up: leave out -short")
	}
	data := content(50_000)
	const limit = 64
	_, server := serve(t, data, func(s *tftp.Server) { s.MaxTransfers, s.Silence = limit, 6*time.Second })
	filesBefore, goroutines := openFiles(t), runtime.NumGoroutine()
	var most, mostFiles int
	for i := range 1000 {
		// Addresses of their own: the limit per client is another one.
		conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 1, byte(i>>8), byte(i))}, net.UDPAddrFromAddrPort(server))
		require.NoError(t, err)
		_, err = conn.Write(rrq("boot.efi", "blksize", "1468", "windowsize", "64"))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		if i%100 == 99 {
			most, mostFiles = max(most, runtime.NumGoroutine()-goroutines), max(mostFiles, openFiles(t)-filesBefore)
		}
	}
	c := dial(t, server)
	assert.True(t, bytes.Equal(data, c.get(rrq("boot.efi"), nil)), "a real client among the silent ones")
	assert.LessOrEqual(t, most, 2*limit+8, "goroutines")
	assert.LessOrEqual(t, mostFiles, 2*2*limit+8, "a socket and a file per transfer, and those about to end")
	t.Logf("%d goroutines and %d files at most", most, mostFiles)
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+2 && openFiles(t) <= filesBefore+2 },
		patience, 50*time.Millisecond, "the silent ones are never forgotten")
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

// TestFault13OneClientManyPorts: one address cannot take all transfers.
func TestFault13OneClientManyPorts(t *testing.T) {
	_, server := serve(t, content(5000), func(s *tftp.Server) { s.MaxPerClient = 2 })
	first := dial(t, server)
	first.send(rrq("boot.efi"))
	require.Equal(t, "DATA 1, 512 bytes", show(first.receive(patience)))
	for range 2 {
		other := dial(t, server)
		other.send(rrq("boot.efi"))
		require.Equal(t, "DATA 1, 512 bytes", show(other.receive(patience)))
	}
	assert.Equal(t, "ERROR 0 the client began again or made no answer while others waited", first.receiveAfter("DATA 1, 512 bytes"))
}

// TestFault13BusyStrangers: machines that are not there begin transfers, answer once and leave the rest, from ever new
// ports and addresses. A node's transfer, the oldest of all, goes on, and so does that of another machine which has
// only one.
func TestFault13BusyStrangers(t *testing.T) {
	data := content(5000)
	node, other := netip.MustParseAddr("127.1.0.1"), netip.MustParseAddr("127.1.0.2")
	_, server := serve(t, data, func(s *tftp.Server) {
		s.MaxTransfers, s.MaxPerClient = 8, 4
		s.Known = func(a netip.Addr) bool { return a == node }
	})
	begin := func(from netip.Addr, wait time.Duration) *client {
		c := dialFrom(t, server, from)
		c.send(rrq("boot.efi"))
		if packet := c.receive(wait); packet != nil && show(packet) == "DATA 1, 512 bytes" {
			c.send(ack(1))
			c.receive(wait)
		}
		return c
	}
	known, single := begin(node, patience), begin(other, patience)
	for n := range 40 {
		begin(netip.AddrFrom4([4]byte{127, 2, 0, byte(n % 3)}), time.Second) // it may be refused without a word
	}
	for _, c := range []*client{known, single} {
		c.send(ack(2))
		assert.Equal(t, "DATA 3, 512 bytes", c.receiveAfter("DATA 1, 512 bytes", "DATA 2, 512 bytes"))
	}
}

// TestFault14LossAndReordering: bad networks, with and without windows.
func TestFault14LossAndReordering(t *testing.T) {
	data := content(60_000)
	_, server := serve(t, data, nil)
	for _, loss := range []float64{0.05, 0.20} {
		for _, window := range []int{1, 8} {
			t.Run(fmt.Sprintf("loss %v window %d", loss, window), func(t *testing.T) {
				t.Parallel()
				relay := &lossyRelay{Server: server, Loss: loss, Duplicate: 0.05, Reorder: 0.05, Seed: 7}
				c := dial(t, relayed(t, relay))
				c.block, c.window = 1024, window
				options := []string{"blksize", "1024"}
				if window > 1 {
					options = append(options, "windowsize", fmt.Sprint(window))
				}
				got := c.get(rrq("boot.efi", options...), nil)
				assert.True(t, bytes.Equal(data, got), "got %d bytes", len(got))
				assert.Positive(t, relay.Lost.Load())
				t.Logf("lost %d, doubled %d, swapped %d", relay.Lost.Load(), relay.Doubled.Load(), relay.Swapped.Load())
			})
		}
	}
}

// TestFault14DuplicatesAreNotMultiplied: with every packet doubled, DATA is not sent for
// every copy of an ACK (the Sorcerer's Apprentice).
func TestFault14DuplicatesAreNotMultiplied(t *testing.T) {
	data := content(50_000)
	_, server := serve(t, data, nil)
	relay := &lossyRelay{Server: server, Duplicate: 1}
	c := dial(t, relayed(t, relay))
	// A starved machine sends nothing again for want of an answer: with this option the server waits a minute for it.
	assert.True(t, bytes.Equal(data, c.get(rrq("boot.efi", "timeout", "60"), nil)))
	blocks := int64(len(data)/512 + 1)
	assert.LessOrEqual(t, relay.Doubled.Load(), 3*blocks+10, "one DATA and at most two ACKs per block pass the relay")
}

func relayed(t *testing.T, relay *lossyRelay) netip.AddrPort {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx, conn) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

// TestFault14SilenceIsNotFlooded: a client that is gone is sent its block ever more seldom, not every tenth of a second.
func TestFault14SilenceIsNotFlooded(t *testing.T) {
	const silence = 5 * time.Second
	_, server := serve(t, content(5000), func(s *tftp.Server) { s.Silence = silence })
	c := dial(t, server)
	c.send(rrq("boot.efi"))
	for block := range uint16(4) { // at once, so that the server's first wait is short
		require.Equal(t, fmt.Sprintf("DATA %d, 512 bytes", block+1), c.receiveAfter(fmt.Sprintf("DATA %d, 512 bytes", block)))
		c.send(ack(block + 1))
	}

	copies := 0
	for c.receiveAfter("DATA 4, 512 bytes") == "DATA 5, 512 bytes" {
		copies++
	}
	assert.Positive(t, copies)
	assert.LessOrEqual(t, copies, 8, "after 0, 0.1, 0.3, 0.7, 1.5 and 3.1 s, or fewer; without backoff 50")
}

// TestFault14NoFragmentsOnEthernet: a client that asks for more gets what fits into a frame.
func TestFault14NoFragmentsOnEthernet(t *testing.T) {
	if !strings.Contains(os.Getenv("FIRSTLIGHT_TEST"), "ns") {
		t.Skip("needs root and network namespaces: set FIRSTLIGHT_TEST=ns")
	}
	if os.Getenv("FIRSTLIGHT_TFTP_INSIDE") == "" {
		inside := exec.Command("unshare", "--net", "sh", "-c",
			`ip link set lo mtu 1500 up && exec "$0" -test.run='^TestFault14NoFragmentsOnEthernet$' -test.v`, os.Args[0])
		inside.Env = append(os.Environ(), "FIRSTLIGHT_TFTP_INSIDE=1")
		out, err := inside.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestFault14NoFragmentsOnEthernet")
		return
	}
	_, server := serve(t, content(5000), nil)
	c := dial(t, server)
	c.send(rrq("boot.efi", "blksize", "65464"))
	assert.Equal(t, "OACK blksize 1468", show(c.receive(patience)))
}

// TestFault15BlockNumbersWrap: a file of more than 65,535 blocks, across the wrap in the
// middle of a window; small blocks make it quick. A file over 32 MB at 512 bytes is
// loaded by other people's clients in cmd/firstlightd.
func TestFault15BlockNumbersWrap(t *testing.T) {
	for _, test := range []struct{ block, window int }{{8, 100}} {
		data := content(65536*test.block + 12345)
		_, server := serve(t, data, nil)
		c := dial(t, server)
		c.block, c.window = test.block, test.window
		got := c.get(rrq("boot.efi", "blksize", fmt.Sprint(test.block), "windowsize", fmt.Sprint(test.window)), nil)
		assert.True(t, bytes.Equal(data, got), "blksize %d: got %d of %d bytes", test.block, len(got), len(data))
	}
}

// TestFault16PacketFromAnotherPort: it gets error 5, and the transfer goes on.
func TestFault16PacketFromAnotherPort(t *testing.T) {
	data := content(20_000)
	_, server := serve(t, data, nil)
	c := dial(t, server)
	stranger := dial(t, server)
	errors := 0
	got := c.get(rrq("boot.efi"), func(block int) {
		if block%10 != 0 || block*512 > len(data)-512 {
			return
		}
		stranger.server = c.server // the transfer's port, found out or guessed
		stranger.send(ack(uint16(block)))
		if answer := stranger.receive(patience); assert.NotNil(t, answer) {
			assert.Equal(t, "ERROR 5 this port belongs to another client's transfer", show(answer))
			errors++
		}
		stranger.send([]byte("\x00\x05\x00\x00stop\x00")) // a stranger cannot end it either
	})
	assert.True(t, bytes.Equal(data, got))
	assert.Positive(t, errors)
}
