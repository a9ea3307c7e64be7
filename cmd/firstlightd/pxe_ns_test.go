package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/firewall"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/pxe/capture"
)

// TestPXEAlone runs the command in one network namespace and asks from another, with
// clients that are not ours: udhcpc, curl by TFTP and HTTP, atftp with windows. The appliance's packet filter is between
// them.
func TestPXEAlone(t *testing.T) {
	if !strings.Contains(os.Getenv("FIRSTLIGHT_TEST"), "ns") || os.Getuid() != 0 {
		t.Skip("needs root and FIRSTLIGHT_TEST=ns: makes network namespaces")
	}
	dir := t.TempDir()
	program, web, out := filepath.Join(dir, "firstlightd"), filepath.Join(dir, "web"), filepath.Join(dir, "out")
	text, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.NoError(t, os.Mkdir(web, 0o755))
	data := make([]byte, 40<<20) // 81,920 blocks of 512 bytes: their numbers wrap
	_, err = rand.Read(data)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(web, "snponly.efi"), data, 0o644))

	tag := rand.Text()[:8] // a run that was killed leaves its namespaces
	server, client := "netboot-s-"+tag, "netboot-c-"+tag
	t.Cleanup(func() {
		for _, ns := range []string{server, client} {
			assert.NoError(t, exec.Command("ip", "netns", "del", ns).Run())
		}
	})
	script := fmt.Sprintf(`set -e
ip netns add %[1]s; ip netns add %[2]s
ip -n %[1]s link add provisioning type veth peer name cli0 netns %[2]s
ip -n %[2]s link set cli0 address 52:54:00:00:00:01
ip -n %[1]s addr add 172.22.0.1/24 dev provisioning; ip -n %[2]s addr add 172.22.0.100/24 dev cli0
ip -n %[1]s link set lo up; ip -n %[1]s link set provisioning up; ip -n %[2]s link set cli0 up`, server, client)
	text, err = exec.Command("sh", "-c", script).CombinedOutput()
	require.NoError(t, err, "%s", text)

	// What boots passes the appliance's packet filter, with its strict check of sources.
	filter := &firewall.Firewall{Site: (&site.Site{}).WithDefaults, Root: dir}
	require.NoError(t, netns.Do("/run/netns/"+server, func() error {
		return errors.Join(os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("1"), 0o644), filter.Load(t.Context(), nil))
	}))

	config := filepath.Join(dir, "pxe.yaml")
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf(`interface: provisioning
address: 172.22.0.1
httpPort: 6180
admin: 127.0.0.1:9100
captures: %[2]s/captures
boot: [%[1]s]
mounts: [{path: /images/, dir: %[1]s}]
dhcp:
  leases: %[2]s/leases
  subnets: [{prefix: 172.22.0.0/24, pool: 172.22.0.100-172.22.0.100}]
machines: {"52:54:00:00:00:01": {action: inspect, kernel: k}}
`, web, dir)), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	var log bytes.Buffer
	daemon := exec.CommandContext(ctx, "ip", "netns", "exec", server, program, "pxe", "--config", config)
	daemon.Cancel = func() error { return daemon.Process.Signal(os.Interrupt) }
	daemon.Stderr = &log
	require.NoError(t, daemon.Start())
	t.Cleanup(func() {
		cancel()
		_ = daemon.Wait() // its end is asked for
		if t.Failed() {
			t.Logf("daemon:\n%s", log.String())
		}
	})
	ask := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // ends a hung run
		defer cancel()
		text, err := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", client}, args...)...).CombinedOutput()
		return string(text), err
	}
	require.Eventually(t, func() bool {
		text, err := ask("udhcpc", "-i", "cli0", "-n", "-q", "-t", "2", "-T", "1", "-s", "/bin/true", "-V", "PXEClient:Arch:00007:UNDI:003016")
		return err == nil && strings.Contains(text, "172.22.0.100")
	}, time.Minute, 100*time.Millisecond)

	for _, load := range [][]string{
		{"curl", "-sS", "-o", out, "tftp://172.22.0.1/snponly.efi"},
		{"curl", "-sS", "--tftp-blksize", "1468", "-o", out, "tftp://172.22.0.1//snponly.efi"},
		{"atftp", "--option", "blksize 512", "--option", "windowsize 16", "-g", "-r", "snponly.efi", "-l", out, "172.22.0.1"},
		{"curl", "-sSf", "-o", out, "http://172.22.0.1:6180//images//snponly.efi"},
		{"curl", "-sSf", "-o", out, "http://172.22.0.1:6180/boot/snponly.efi"},
	} {
		_ = os.Remove(out) // from the load before
		text, err := ask(load...)
		require.NoError(t, err, "%v: %s", load, text)
		got, err := os.ReadFile(out)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(data, got), "%v: got %d bytes", load, len(got))
	}
	text1, err := ask("curl", "-sS", "-o", out, "-T", config, "tftp://172.22.0.1/new")
	assert.Error(t, err, "an upload went through: %s", text1)
	text1, err = ask("curl", "-sS", "--path-as-is", "http://172.22.0.1:6180/images/%2e%2e/pxe.yaml")
	require.NoError(t, err)
	assert.Contains(t, text1, `it has ".." in it`)
	text1, err = ask("curl", "-sS", "http://172.22.0.1:6180/ipxe/52-54-00-00-00-01")
	require.NoError(t, err)
	assert.Contains(t, text1, "BOOTIF=01-52-54-00-00-00-01")

	seen, err := exec.Command("ip", "netns", "exec", server, "curl", "-sS", "http://127.0.0.1:9100/machines/52:54:00:00:00:01").Output()
	require.NoError(t, err)
	for _, step := range []string{"lease", "tftp", "bootfile", "script"} {
		assert.Contains(t, string(seen), `"step": "`+step+`"`)
	}
	counters, err := exec.Command("ip", "netns", "exec", server, "curl", "-sS", "http://127.0.0.1:9100/metrics").Output()
	require.NoError(t, err)
	assert.Contains(t, string(counters), `firstlight_pxe_tftp_transfers_total{result="done"} 3`)
	assert.Contains(t, string(counters), "firstlight_pxe_dhcp_acks_total 1")
	assertCaptured(t, filepath.Join(dir, "captures", "52-54-00-00-00-01.pcap"))

	boot, err := capture.ReadBoot(filepath.Join(dir, "captures"), net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1})
	require.NoError(t, err)
	answers := map[string][]capture.Kind{}
	for _, e := range boot {
		t.Logf("%+v", e)
		question := fmt.Sprintf("%s %s %s", e.Protocol, e.Kind, e.File)
		for _, a := range e.Answers {
			assert.Equal(t, "172.22.0.1", a.Server.String(), question)
			if !slices.Contains(answers[question], a.Kind) {
				answers[question] = append(answers[question], a.Kind)
			}
		}
	}
	assert.Equal(t, map[string][]capture.Kind{
		"DHCP DISCOVER ":        {capture.Offer},
		"DHCP REQUEST ":         {capture.Ack},
		"TFTP RRQ snponly.efi":  {capture.Options, capture.Data},
		"TFTP RRQ /snponly.efi": {capture.Options, capture.Data},
		"TFTP WRQ new":          {capture.Failure},
	}, answers, "what its clients asked, and what each was answered")
}

// assertCaptured: the whole conversation is there, from both sides, and little of the 40 MiB that were loaded.
func assertCaptured(t *testing.T, path string) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm())
	t.Logf("%s: %d bytes", path, info.Size())
	r, err := pcapgo.NewReader(f)
	require.NoError(t, err)
	seen := map[string]int{}
	for packet := range gopacket.NewPacketSource(r, r.LinkType()).Packets() {
		if m, ok := packet.Layer(layers.LayerTypeDHCPv4).(*layers.DHCPv4); ok {
			for _, o := range m.Options {
				if o.Type == layers.DHCPOptMessageType {
					seen[layers.DHCPMsgType(o.Data[0]).String()]++
				}
			}
			continue
		}
		udp, ok := packet.Layer(layers.LayerTypeUDP).(*layers.UDP)
		require.True(t, ok, "%s", packet)
		seen[fmt.Sprintf("tftp %d", udp.Payload[1])]++
	}
	t.Log(seen)
	for _, what := range []string{"Discover", "Offer", "Request", "Ack", "tftp 1", "tftp 3", "tftp 4", "tftp 6"} {
		assert.Positive(t, seen[what], what)
	}
	assert.Equal(t, 1, seen["tftp 2"], "the upload that was refused")
	assert.Positive(t, seen["tftp 5"], "the refusal")
}
