package lab_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/freeport"
	"firstlight.dev/firstlight/image/lab"
)

const lineReady = "firstlight: Ready." // what the console says when the whole plan is done

// networked is an appliance with two cables, and all that went over them: net0 has a DHCP
// server and a router (QEMU's, which lets nothing through but our SSH), net1 is silent.
type networked struct {
	*lab.Machine
	t     *testing.T
	conf  lab.Config
	ssh   string // where its SSH is on this machine
	login *ssh.ClientConfig
	dumps []string
}

// newNetworked makes a stick with a site that holds one SSH key, and a machine for it.
func newNetworked(t *testing.T, kind string, mib int) *networked {
	needKind(t, kind)
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	dir := t.TempDir()
	image, site := filepath.Join(dir, "stick.img"), filepath.Join(dir, "site.yaml")
	require.NoError(t, os.WriteFile(site, fmt.Appendf(nil, "name: bench\naccess:\n  sshKeys: [%q]\n", strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))), 0o600))
	build := exec.CommandContext(t.Context(), "go", "run", "./cmd/firstlight", "build", "--site", site, "--out", image)
	build.Dir = "../.."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	port, err := freeport.FindTCP()
	require.NoError(t, err)
	n := &networked{t: t, ssh: fmt.Sprint("127.0.0.1:", port), login: &ssh.ClientConfig{User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: time.Minute}} // the key is minted by this very machine, on loopback
	var extra []string
	silent := filepath.Join(dir, "silent") // takes every frame and answers none
	frames, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: silent, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = frames.Close() })
	go func() { _, _ = io.Copy(io.Discard, frames) }()
	for i, backend := range []string{
		fmt.Sprintf("user,restrict=on,hostfwd=tcp:%s-:22", n.ssh),
		fmt.Sprintf("dgram,local.type=unix,local.path=%s.nic,remote.type=unix,remote.path=%s", silent, silent),
	} {
		kind, rest, _ := strings.Cut(backend, ",")
		dump := filepath.Join(dir, fmt.Sprintf("net%d.pcap", i))
		n.dumps = append(n.dumps, dump)
		extra = append(extra, "-netdev", fmt.Sprintf("%s,id=net%d,%s", kind, i, rest),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=net%d,mac=52:54:00:fe:01:%02x", i, i),
			"-object", fmt.Sprintf("filter-dump,id=dump%d,netdev=net%d,file=%s", i, i, dump))
	}
	n.conf = lab.Config{Dir: filepath.Join(dir, "machine"), MiB: mib, Disks: []lab.Disk{{Image: image, Bus: lab.USB, Bytes: 8 * gib}}, Extra: extra}
	n.Machine = newMachine(t, n.conf)
	return n
}

// shell runs a command on the appliance by SSH; it tries until the command succeeds.
func (n *networked) shell(command string) string {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), lab.BootDeadline)
	defer cancel()
	for {
		out, err := n.once(command)
		if err == nil {
			return out
		}
		select {
		case <-ctx.Done():
			require.NoError(n.t, err, "%s: %s", command, out)
		case <-time.After(3 * time.Second):
		}
	}
}

func (n *networked) once(command string) (string, error) {
	client, err := ssh.Dial("tcp", n.ssh, n.login)
	if err != nil {
		return "", err
	}
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		return "", err
	}
	out, err := session.CombinedOutput(command)
	return string(out), err
}

// leaving lists what the captures hold that was meant for somewhere else: packets of the
// appliance to an address that is neither of its networks' nor a broadcast or multicast one,
// and questions for names to a resolver of the outside.
func (n *networked) leaving() (seen int, leaving []string) {
	for _, dump := range n.dumps {
		cmd := exec.Command("tshark", "-n", "-r", dump, "-T", "fields", "-E", "separator=|",
			"-e", "eth.src", "-e", "ip.dst", "-e", "ipv6.dst", "-e", "dns.qry.name", "-e", "_ws.col.Info")
		out, err := cmd.Output()
		if len(out) == 0 { // a capture that a power cut ended has a torn last packet
			require.NoError(n.t, err, "read %s", dump)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Split(strings.TrimSpace(line), "|")
			if len(f) < 5 || !strings.HasPrefix(f[0], "52:54:00:fe:01:") {
				continue
			}
			seen++
			if f[3] != "" && !strings.HasSuffix(f[3], ".local") {
				leaving = append(leaving, line)
				continue
			}
			for _, text := range strings.Split(strings.Trim(f[1]+","+f[2], ","), ",") {
				if text != "" && !inside(text) {
					leaving = append(leaving, line)
				}
			}
		}
	}
	return seen, leaving
}

func inside(text string) bool {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return false
	}
	ours := []netip.Prefix{netip.MustParsePrefix("10.0.2.0/24"), netip.MustParsePrefix("172.22.0.0/24")}
	return a.IsMulticast() || a.IsLinkLocalUnicast() || a == netip.MustParseAddr("255.255.255.255") ||
		slices.ContainsFunc(ours, func(p netip.Prefix) bool { return p.Contains(a) })
}

// TestNothingLeaves brings the stick up between two networks, one of them with a router and
// a resolver, and reads everything it sent: it never asked the outside for anything.
func TestNothingLeaves(t *testing.T) {
	n := newNetworked(t, "qemu-all", 6144)
	startsFrom(t, n.Machine)
	for _, line := range []string{lineNode, linePods, lineReady} {
		see(t, n.Machine, line)
	}
	t.Logf("firstlightd status:\n%s", n.shell("firstlightd status"))
	t.Logf("kubectl get nodes,pods -A:\n%s", n.shell("kubectl get nodes,pods -A -o wide"))
	time.Sleep(time.Minute) // what is tried now and then
	powerOff(t, n.Machine)
	seen, leaving := n.leaving()
	require.NotZero(t, seen, "the captures hold nothing of the appliance")
	assert.Empty(t, leaving)
	t.Logf("%d packets of the appliance in the captures, %d of them for the outside", seen, len(leaving))
}

// TestCutsLoseNoObject cuts the power at moments spread over the bring-up. Before each cut at
// which the API answers an object is written; in the end all of them are there.
func TestCutsLoseNoObject(t *testing.T) {
	n := newNetworked(t, "qemu-all", 6144)
	for i, moment := range []struct {
		name, line string
		later      time.Duration
		write      bool
	}{
		{"while images are linked", "firstlight: images-present: linking", 0, false},
		{"images are there", lineImages, 0, false},
		{"while the control plane starts", lineImages, 20 * time.Second, false},
		{"the API answers", lineControlPlane, 0, true},
		{"the node is Ready", lineNode, 0, true},
		{"the system's pods run", linePods, 0, true},
		{"while the pods of the parts start", linePods, time.Minute, true},
	} {
		require.NoError(t, n.Start(t.Context()), moment.name)
		see(t, n.Machine, moment.line)
		time.Sleep(moment.later)
		if moment.write {
			n.shell(fmt.Sprintf("kubectl -n default create configmap cut-%d --from-literal=moment=%q --dry-run=client -o yaml | kubectl apply -f -", i, moment.name))
		}
		require.NoError(t, n.Kill())
		t.Logf("power cut: %s (object written: %t)", moment.name, moment.write)
	}
	startsFrom(t, n.Machine)
	see(t, n.Machine, linePods)
	objects := n.shell("kubectl -n default get configmap -o name")
	for _, i := range []int{3, 4, 5, 6} {
		assert.Contains(t, objects, fmt.Sprintf("configmap/cut-%d\n", i))
	}
	t.Logf("after all cuts:\n%s%s", n.shell("kubectl get nodes,pods -A"), objects)
	powerOff(t, n.Machine)
}

// TestClockYearsOff boots one stick with the right time, then ten years ahead, then ten years
// back: every certificate is out of date then, and the appliance mends that by itself. What was
// written is there at each of them.
func TestClockYearsOff(t *testing.T) {
	n := newNetworked(t, "qemu-all", 6144)
	now := time.Now().UTC()
	for _, boot := range []struct {
		name  string
		clock time.Time
	}{
		{"the right time", now},
		{"ten years ahead", now.AddDate(10, 0, 0)},
		{"ten years back, before the image was made", now.AddDate(-10, 0, 0)},
	} {
		c := n.conf
		c.Extra = append(slices.Clone(c.Extra), "-rtc", "base="+boot.clock.Format("2006-01-02T15:04:05"))
		n.Machine = newMachine(t, c)
		startsFrom(t, n.Machine)
		see(t, n.Machine, linePods)
		t.Logf("%s: %s%s", boot.name, n.shell("date -u"), n.shell("kubectl get nodes,pods -A"))
		if boot.clock.Equal(now) {
			n.shell("kubectl -n default create configmap kept --dry-run=client -o yaml | kubectl apply -f -")
		}
		n.shell("kubectl -n default get configmap kept")
		powerOff(t, n.Machine)
	}
}
