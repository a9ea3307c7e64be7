package scenario_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
	"firstlight.dev/firstlight/daemon/metal/netboot"
	"firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// rackInService is servers that were installed, with what runs on them: most have BMCs of Redfish, the last ones of
// IPMI, and each lets the appliance in by SSH, as what was installed on it would.
type rackInService struct {
	t      *testing.T
	d      *scenario.Scenario
	site   string
	byIPMI map[string]*bmc.BMC      // by node
	orders map[string]int           // that these were given until the rack was in service
	shells map[string]*sshtest.Node // by node
}

// startRack brings n servers into service, of which the last byIPMI have BMCs of IPMI.
func startRack(t *testing.T, ctx context.Context, d *scenario.Scenario, byIPMI int) *rackInService {
	t.Helper()
	hosts := d.Servers.Hosts()
	r := &rackInService{
		t:      t,
		d:      d,
		site:   d.Servers.SiteDocument("eth0", scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA))),
		byIPMI: map[string]*bmc.BMC{},
		orders: map[string]int{},
		shells: map[string]*sshtest.Node{},
	}
	address := netip.MustParseAddr("172.31.1.17")
	for _, h := range hosts[len(hosts)-byIPMI:] {
		r.byIPMI[h.Name] = startIPMI(t, ctx, d, h, address.String())
		h.SetInBandBMC(address.String())
		require.Contains(t, r.site, h.BMC())
		r.site = strings.Replace(r.site, h.BMC(), "ipmi://"+address.String(), 1)
		address = address.Next()
	}

	provisionSite(t, ctx, d, len(hosts), r.site)
	leases := leasesOf(t, d)
	for _, h := range hosts {
		require.Contains(t, leases, h.MAC, h.Name)
		r.shells[h.Name] = startSSH(t, ctx, d, h, leases[h.MAC])
	}
	d.Servers.ResetCounters()
	for name, b := range r.byIPMI {
		r.orders[name] = len(b.Writes())
	}
	return r
}

var leaseEntry = regexp.MustCompile(`(?s)lease (\S+) \{.*?hardware ethernet ([0-9a-f:]+);`)

// leasesOf are the addresses that servers leased to be installed, by MAC.
func leasesOf(t *testing.T, d *scenario.Scenario) map[string]string {
	t.Helper()
	text, err := os.ReadFile(d.Sandbox.Path(netboot.LeaseFile))
	require.NoError(t, err)
	byMAC := map[string]string{}
	for _, match := range leaseEntry.FindAllStringSubmatch(string(text), -1) {
		byMAC[match[2]] = match[1]
	}
	return byMAC
}

var (
	privateHostKey = regexp.MustCompile(`-----BEGIN OPENSSH PRIVATE KEY-----[^"]+-----END OPENSSH PRIVATE KEY-----`)
	authorizedKey  = regexp.MustCompile(`ssh-ed25519\s+(AAAA[A-Za-z0-9+/]+=*)`)
)

// ownEtc has a command see the node's own /etc, with what names programs of this machine.
const ownEtc = `cd "$DIR" && mkdir -p etc/alternatives && mount --bind /etc/alternatives etc/alternatives && ` +
	`mount --rbind etc /etc`

// startSSH lets the appliance in at an installed server, by the host key and to the keys that its config drive has.
func startSSH(
	t *testing.T, ctx context.Context, d *scenario.Scenario, h *simulator.Server, address string,
) *sshtest.Node {
	t.Helper()
	drive := h.InstalledDrive()
	private := strings.ReplaceAll(string(privateHostKey.Find(drive)), `\n`, "\n") + "\n"
	hostKey, err := ssh.ParsePrivateKey([]byte(private))
	require.NoError(t, err, h.Name)
	key := authorizedKey.FindSubmatch(drive)
	require.NotNil(t, key, "%s lets nobody in", h.Name)

	require.NoError(t, d.Wire().IP(ctx, "address replace "+address+"/32 dev "+netns.BridgeName))
	var listener net.Listener
	require.NoError(t, netns.Do(d.Wire().Path(), func() (err error) {
		listener, err = net.Listen("tcp4", address+":22")
		return err
	}))
	n := sshtest.NewOn(t, listener, hostKey)
	n.PutProgram("getent", "echo root:x:0:0::$DIR/root:/bin/sh\n"+
		"echo firstlight:x:1000:1000::$DIR/home/firstlight:/bin/sh")
	n.PutProgram("sh", `exec unshare --mount /bin/sh -c '`+ownEtc+` && exec /bin/sh "$@"' sh "$@"`)
	for _, home := range []string{"root", "home/firstlight"} {
		n.Put(home+"/.ssh/authorized_keys", "ssh-ed25519 "+string(key[1])+" appliance\n")
	}
	return n
}

// checkUntouched waits until every host is in service and its BMC has told Ironic that it is on, and checks that no one
// but for its password wrote to a BMC, to a disk, or restarted a server.
func (r *rackInService) checkUntouched(ctx context.Context, when string) {
	r.t.Helper()
	hosts := r.d.Servers.Hosts()
	inService(r.t, ctx, r.d, len(hosts))
	known, err := r.d.Nodes(ctx)
	require.NoError(r.t, err)
	reads := map[string]int{}
	for _, h := range hosts {
		reads[h.Name] = h.Counters().BMCReads
		require.EventuallyWithT(r.t, func(c *assert.CollectT) { // Ironic may have the node locked
			assert.NoError(c, r.d.AskPower(ctx, known[h.Name].UUID))
		}, 10*time.Minute, time.Second)
	}
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		known, err := r.d.Nodes(ctx)
		assert.NoError(c, err)
		for _, h := range hosts {
			n := known[h.Name]
			assert.Equal(c, "power on", n.Power, h.Name)
			assert.Empty(c, n.Target+n.Error, h.Name)
			if r.byIPMI[h.Name] == nil {
				assert.Greater(c, h.Counters().BMCReads, reads[h.Name], h.Name)
			}
		}
	}, 10*time.Minute, time.Second)
	inService(r.t, ctx, r.d, len(hosts))

	total := r.d.Servers.TotalCounters()
	r.t.Logf("%s: %d hosts in service; BMC writes %d, of which %d passwords; disk writes %d, boots %d; logins refused %d",
		when, len(hosts), total.BMCWrites, total.BMCPasswords, total.DiskWrites, total.Boots, total.BMCRefused)
	assert.Equal(r.t, total.BMCPasswords, total.BMCWrites, when)
	assert.Zero(r.t, total.DiskWrites, when)
	assert.Zero(r.t, total.Boots, when)
	for name, b := range r.byIPMI {
		assert.Empty(r.t, b.Writes()[r.orders[name]:], "%s: orders to the BMC of %s", when, name)
	}
	onDisk(r.t, r.d, scenario.ImageA)
}

// checkAnswerIsTheBMCs: asked for the power of a server whose BMC takes another password, Ironic does not know it.
func (r *rackInService) checkAnswerIsTheBMCs(ctx context.Context, h *simulator.Server) {
	r.t.Helper()
	h.SetFaults(simulator.Faults{Password: "somebody changed it"})
	known, err := r.d.Nodes(ctx)
	require.NoError(r.t, err)
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		assert.NoError(c, r.d.AskPower(ctx, known[h.Name].UUID))
	}, 10*time.Minute, time.Second)
	require.EventuallyWithT(r.t, func(c *assert.CollectT) {
		known, err := r.d.Nodes(ctx)
		assert.NoError(c, err)
		assert.NotEmpty(c, known[h.Name].Error)
	}, 10*time.Minute, time.Second)
}

// restartDaemon kills the daemon, and waits until what is started in its place has hosts in service guarded.
func (r *rackInService) restartDaemon(ctx context.Context) {
	r.t.Helper()
	require.NoError(r.t, r.d.Kill(ctx, "firstlightd"))
	_, err := r.d.Sandbox.AwaitStage(ctx, "hosts-guarded", r.t.Output())
	require.NoError(r.t, err)
}

// await waits until something is so.
func (r *rackInService) await(what string, isSo func() bool) {
	r.t.Helper()
	began := time.Now()
	require.Eventually(r.t, isSo, 15*time.Minute, 200*time.Millisecond, what)
	r.t.Logf("%s: after %.0f s", what, time.Since(began).Seconds())
}

// checkNothingWaits: the status names nothing that is left of a rotation.
func (r *rackInService) checkNothingWaits(ctx context.Context) {
	r.t.Helper()
	doc, err := r.d.Sandbox.Status(ctx)
	require.NoError(r.t, err)
	for _, note := range doc.Notes {
		assert.NotRegexp(r.t, `password|log-in|authority|key of packages|waited for`, note)
	}
}
