package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beevik/ntp"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/metal/registry"
)

// box says which part this process plays: "" the test itself, "test" inside the
// namespaces, "daemon" the daemon inside them.
const box = "FIRSTLIGHT_BOX"

func inBox(part, run string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^"+run+"$", "-test.v")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, box+"=") }), box+"="+part)
	return cmd
}

// TestDaemonInNamespaces runs the whole daemon, without systemd and without Kubernetes, on
// this machine's files seen through overlays: it must come as far as ssh-ready, again
// after being killed at any moment, and take up an edited and refuse a wrong site.
func TestDaemonInNamespaces(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "ns") {
		t.Skip("needs root and namespaces: set FIRSTLIGHT_TEST=ns")
	}
	inner := inBox("test", "TestBox")
	cmd := exec.Command("unshare", append([]string{"-n", "-u", "-m"}, inner.Args...)...)
	cmd.Env = inner.Env
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
	require.Contains(t, string(out), "--- PASS: TestBox")
}

// TestDaemonOfBox is the daemon's process: it is killed by its signal.
func TestDaemonOfBox(t *testing.T) {
	if os.Getenv(box) != "daemon" {
		t.Skip("run by TestBox in namespaces of its own")
	}
	_ = New(slog.New(slog.NewTextHandler(os.Stderr, nil))).Run(context.Background())
}

// TestRegistryOfBox is the registry's process, which its unit runs on an appliance.
func TestRegistryOfBox(t *testing.T) {
	if os.Getenv(box) != "registry" {
		t.Skip("run by TestBox in namespaces of its own")
	}
	_ = registry.NewProcess(slog.New(slog.NewTextHandler(os.Stderr, nil))).Run(context.Background())
}

type boxed struct {
	t      *testing.T
	dir    string
	serial string
	cmd    *exec.Cmd
	client api.Client
}

func TestBox(t *testing.T) {
	if os.Getenv(box) != "test" {
		t.Skip("run by TestDaemonInNamespaces in namespaces of its own")
	}
	b := &boxed{t: t, dir: t.TempDir(), client: api.Client{Socket: status.SocketPath}}
	b.mounts()
	t.Cleanup(b.kill)
	b.serveImages()
	b.comesUp()
	b.isKilledAtAnyMoment()
	b.takesUpAnEdit()
	b.refusesAWrongSite()
	b.servesNodesBesideStrangers()
	b.suppliesNodesWhereTheyAre()
	b.refusesToActWithoutKubernetes()
}

// mounts hides this machine's state; the namespace's end takes it all away.
func (b *boxed) mounts() {
	require.NoError(b.t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	mem := filepath.Join(b.dir, "mem")
	require.NoError(b.t, os.MkdirAll(mem, 0o755))
	require.NoError(b.t, unix.Mount("tmpfs", mem, "tmpfs", 0, ""))
	b.t.Cleanup(func() {
		for _, dir := range []string{"/etc", "/var/lib", mem} {
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	for _, dir := range []string{"/etc", "/var/lib"} {
		upper, work := filepath.Join(mem, dir, "upper"), filepath.Join(mem, dir, "work")
		require.NoError(b.t, os.MkdirAll(upper, 0o755))
		require.NoError(b.t, os.MkdirAll(work, 0o755))
		require.NoError(b.t, unix.Mount("overlay", dir, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work)))
	}
	require.NoError(b.t, unix.Mount("tmpfs", "/run", "tmpfs", 0, ""))
	// The kernel's only console is a file of ours.
	b.serial = filepath.Join(b.dir, "serial")
	active := filepath.Join(b.dir, "active")
	require.NoError(b.t, os.WriteFile(b.serial, nil, 0o644))
	require.NoError(b.t, os.WriteFile(active, []byte(".."+b.serial+"\n"), 0o644))
	require.NoError(b.t, unix.Mount(active, "/sys/class/tty/console/active", "", unix.MS_BIND, ""))
}

func (b *boxed) start() { b.cmd = b.spawn("daemon", "TestDaemonOfBox") }

// serveImages starts the registry's process, as there is no systemd to do it, and makes its group.
func (b *boxed) serveImages() {
	groups, err := os.OpenFile("/etc/group", os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(b.t, err)
	_, err = fmt.Fprintf(groups, "%s:x:590:\n", registry.User)
	require.NoError(b.t, errors.Join(err, groups.Close()))
	cmd := b.spawn("registry", "TestRegistryOfBox")
	b.t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
}

// spawn starts one of the processes of the box.
func (b *boxed) spawn(part, run string) *exec.Cmd {
	cmd := inBox(part, run)
	log, err := os.OpenFile(filepath.Join(b.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	require.NoError(b.t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(b.t, cmd.Start())
	return cmd
}

func (b *boxed) kill() {
	if b.cmd != nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		b.cmd = nil
	}
}

// until asks until the status is as wanted.
func (b *boxed) until(what string, ok func(status.Document) bool) status.Document {
	var last status.Document
	var err error
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); { // it only ends a hung run
		if last, err = b.client.Status(b.t.Context()); err == nil && ok(last) {
			return last
		}
		time.Sleep(50 * time.Millisecond)
	}
	log, _ := os.ReadFile(filepath.Join(b.dir, "log"))
	require.Fail(b.t, what, "last: %+v %v\n%s", last, err, log)
	return last
}

// told waits until the serial line has a text.
func (b *boxed) told(text string) {
	require.Eventually(b.t, func() bool {
		all, _ := os.ReadFile(b.serial)
		return strings.Contains(string(all), text)
	}, time.Minute, 20*time.Millisecond, "the serial line does not say %q", text)
}

func stage(d status.Document, name string) status.Stage {
	for _, s := range d.Stages {
		if s.Name == name {
			return s
		}
	}
	return status.Stage{}
}

func isReady(name string) func(status.Document) bool {
	return func(d status.Document) bool { return stage(d, name).State == status.StateReady }
}

func (b *boxed) comesUp() {
	b.start()
	d := b.until("ssh-ready", isReady("ssh-ready"))
	assert.Equal(b.t, "firstlight-"+d.MachineID[:4], d.Name)
	require.Len(b.t, d.Addresses, 1)
	assert.Equal(b.t, []string{"172.22.0.1/24"}, d.Addresses[0].Addresses)
	b.told("firstlight: links-up: ok")
	require.Eventually(b.t, func() bool {
		h, err := bringup.ReadHistory(filepath.Join(stick.DataDir, JournalName))
		return err == nil && len(h.Runs) == 1 && h.Runs[0].BootID == d.BootID
	}, time.Minute, 50*time.Millisecond, "no journal")
}

func (b *boxed) isKilledAtAnyMoment() {
	first := b.until("ssh-ready", isReady("ssh-ready"))
	for n := range 8 {
		b.kill()
		b.start()
		time.Sleep(time.Duration(n*n) * 5 * time.Millisecond)
	}
	b.kill()
	b.start()
	d := b.until("ssh-ready after kills", isReady("ssh-ready"))
	assert.Equal(b.t, first.MachineID, d.MachineID)
	for _, name := range []string{"data-mounted", "identity", "links-up", "clock-set", "ssh-ready"} {
		assert.Zero(b.t, stage(d, name).Attempts, "%s was done again though it was true", name)
	}
}

// site edits the site, and returns what the daemon says to that.
func (b *boxed) site(text string) error {
	require.NoError(b.t, os.MkdirAll(stick.SiteDir, 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(stick.SiteDir, host.SiteName), []byte(text), 0o644))
	return b.client.Reload(b.t.Context())
}

func (b *boxed) takesUpAnEdit() {
	require.NoError(b.t, b.site("name: rack-7\nnetworks: {provisioning: {cidr: 10.7.0.0/24, address: 10.7.0.1}}\n"))
	d := b.until("the edit", func(d status.Document) bool {
		return d.Name == "rack-7" && len(d.Addresses) == 1 && slices.Equal(d.Addresses[0].Addresses, []string{"10.7.0.1/24"})
	})
	assert.NotEqual(b.t, status.StateFailed, d.State)
}

func (b *boxed) refusesAWrongSite() {
	require.ErrorContains(b.t, b.site("name: rack-7\nnmae: wrong\nclusterz: 3\n"), "site.yaml:2: ")
	d := b.until("the refusal", func(d status.Document) bool { return d.State == status.StateFailed })
	assert.Len(b.t, strings.Split(stage(d, "site-read").Error, "\n"), 2, "not every mistake is named")
	assert.Contains(b.t, d.Next, "site.yaml")
	_, err := b.client.Wait(b.t.Context(), api.ApplianceReady)
	assert.ErrorContains(b.t, err, "site.yaml:2: ")
	b.told("firstlight: site-read: site.yaml:3: ")
	assert.Equal(b.t, "rack-7", d.Name, "the last good site is gone")
	require.NoError(b.t, b.site("name: rack-8\n"))
	b.until("the correction", func(d status.Document) bool { return d.Name == "rack-8" && isReady("ssh-ready")(d) })
}

// Strangers take all that DHCP gives to anybody; nodes of the site still boot, also one that
// was added while the others were served.
func (b *boxed) servesNodesBesideStrangers() {
	for _, args := range []string{"link add eth1 type veth peer name sw1", "link set sw1 up"} {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		require.NoError(b.t, err, "ip %s: %s", args, out)
	}
	text := `name: rack-9
networks: {provisioning: {interface: eth1, dhcp: {range: 172.22.0.10-172.22.0.30}}}
nodes: [{name: node-1, macs: ["52:54:00:00:00:11"]}`
	require.NoError(b.t, b.site(text+"]"))
	require.Eventually(b.t, func() bool { return b.lease("02:00:00:00:01:00") }, time.Minute, 50*time.Millisecond, "nobody is served")
	require.NoError(b.t, b.site(text+`, {name: node-2, macs: ["52:54:00:00:00:21"]}]`))
	b.until("the edit", func(d status.Document) bool { return len(d.Nodes) == 2 })
	time.Sleep(3 * time.Second) // DHCP looks every second
	const share = 21 - 1 - 2
	served := make([]bool, 120)
	count := 0
	for round := 0; round < 10 && count < share; round++ { // on a busy machine some ask too few times
		var all sync.WaitGroup
		for n := range served {
			if !served[n] {
				all.Go(func() { served[n] = b.lease(fmt.Sprintf("02:00:00:00:00:%02x", n)) })
			}
		}
		all.Wait()
		count = 0
		for _, has := range served {
			if has {
				count++
			}
		}
	}
	assert.Equal(b.t, share, count, "strangers have all but the nodes' addresses")
	for _, mac := range []string{"52:54:00:00:00:11", "52:54:00:00:00:21"} { // the second was added
		assert.Eventually(b.t, func() bool { return b.lease(mac) }, time.Minute, 50*time.Millisecond, "node %s gets no address", mac)
	}
}

// lease tells whether a machine of the rack gets an address.
func (b *boxed) lease(mac string) bool {
	hw, err := net.ParseMAC(mac)
	require.NoError(b.t, err)
	c, err := nclient4.New("sw1", nclient4.WithHWAddr(hw), nclient4.WithTimeout(2*time.Second), nclient4.WithRetry(2))
	if !assert.NoError(b.t, err) {
		return false
	}
	defer c.Close()
	_, err = c.Request(b.t.Context())
	return err == nil
}

// Nodes of the site have addresses on baremetal: images, packages and time are served at the appliance's
// address there, and nothing to boot. At its address among the BMCs there is nothing.
func (b *boxed) suppliesNodesWhereTheyAre() {
	const there, beside, bmc = "172.22.0.1", "10.10.110.5", "10.9.0.1"
	networks := "name: rack-10\nnetworks: {provisioning: {interface: eth1}, baremetal: {cidr: 10.10.110.0/24, address: 10.10.110.5}, bmc: {cidr: 10.9.0.0/24, address: 10.9.0.1}}\n"
	out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput() // the way to an address of one's own
	require.NoError(b.t, err, "%s", out)
	require.NoError(b.t, b.site(networks))
	b.until("the networks", func(d status.Document) bool { return len(d.Addresses) == 3 && isReady("clock-set")(d) })
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	get := func(url string) (int, string) {
		response, err := client.Get(url)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(text)
	}
	says := func(want string) {
		require.EventuallyWithT(b.t, func(c *assert.CollectT) {
			_, text := get("https://" + there + ":5000/addresses")
			assert.Equal(c, want, text)
		}, time.Minute, 50*time.Millisecond)
	}
	says("172.22.0.1/24\n")
	code, _ := get("http://" + beside + ":6180/debian/pool/none")
	assert.Zero(b.t, code, "packages where no node is")

	require.NoError(b.t, b.site(networks+`nodes: [{name: node-1, macs: ["52:54:00:00:00:11"], links: [{network: baremetal, mac: "52:54:00:00:00:12", address: 10.10.110.21/24}]}]`))
	says("172.22.0.1/24\n10.10.110.5/24\n")
	require.EventuallyWithT(b.t, func(c *assert.CollectT) {
		code, _ := get("http://" + beside + ":6180/debian/pool/none")
		assert.Equal(c, http.StatusNotFound, code)
		for _, at := range []string{there, beside} {
			r, err := ntp.QueryWithOptions(at, ntp.QueryOptions{Timeout: 2 * time.Second})
			if assert.NoError(c, err, at) {
				assert.NoError(c, r.Validate(), at)
			}
		}
	}, time.Minute, 50*time.Millisecond)
	require.EventuallyWithT(b.t, func(c *assert.CollectT) {
		code, text := get("http://" + there + ":6180/ipxe/52-54-00-00-00-11")
		assert.Equal(c, http.StatusOK, code, text)
	}, time.Minute, 50*time.Millisecond)
	for _, path := range []string{"/ipxe/52-54-00-00-00-11", "/boot/ipxe.efi", "/ramdisk/kernel", "/images/", "/artifacts/x"} {
		code, _ := get("http://" + beside + ":6180" + path)
		assert.Equal(b.t, http.StatusNotFound, code, "%s is served beside provisioning", path)
	}
	conn, err := tls.Dial("tcp", beside+":5000", &tls.Config{InsecureSkipVerify: true})
	require.NoError(b.t, err)
	defer conn.Close()
	for _, name := range []string{there, beside} {
		assert.NoError(b.t, conn.ConnectionState().PeerCertificates[0].VerifyHostname(name))
	}
	for _, url := range []string{"https://" + bmc + ":5000/ca.crt", "http://" + bmc + ":6180/debian/pool/none"} {
		code, _ := get(url)
		assert.Zero(b.t, code, "%s is answered", url)
	}
}
