package scenario_test

import (
	"context"
	"encoding/base64"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/testbed/netns"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
	"firstlight.dev/firstlight/image/lab/testbed/simulator"
)

// The networks of the rack besides provisioning: the appliance's address, and a stranger's.
var (
	bmcAppliance, bmcStranger     = netip.MustParseAddr("10.30.0.2"), netip.MustParsePrefix("10.30.0.66/24")
	ownerAppliance, ownerStranger = netip.MustParseAddr("10.10.110.20"), netip.MustParsePrefix("10.10.110.66/24")
)

const threeNetworks = `name: hostile
networks:
  provisioning: {interface: eth0}
  bmc: {interface: eth1, cidr: 10.30.0.0/24, address: 10.30.0.2}
  baremetal: {interface: eth2, cidr: 10.10.110.0/24, address: 10.10.110.20}
`

// ports are those of every service of the appliance, loopback's, too.
var ports = []string{"22", "5000", "6180", "6385", "6443", "10250", "9015", "8089", "2379", "9016", "9100", "9443"}

// strangers are one machine on each network, and how often they were refused.
type strangers struct {
	t       *testing.T
	d       *scenario.Scenario
	targets []*simulator.Server // hosts that are being installed

	provisioning, bmc, owner *scenario.Stranger
	refused                  atomic.Int64
	work                     sync.WaitGroup
	stop                     context.CancelFunc
}

func plugInStrangers(t *testing.T, ctx context.Context, d *scenario.Scenario, bmc, owner *netns.Bridge) *strangers {
	t.Helper()
	s := &strangers{t: t, d: d}
	var err error
	s.provisioning, err = d.NewStranger(ctx)
	require.NoError(t, err)
	t.Cleanup(s.provisioning.Close)
	s.bmc, err = d.NewStrangerOn(ctx, bmc, bmcStranger, bmcAppliance)
	require.NoError(t, err)
	t.Cleanup(s.bmc.Close)
	s.owner, err = d.NewStrangerOn(ctx, owner, ownerStranger, ownerAppliance)
	require.NoError(t, err)
	t.Cleanup(s.owner.Close)
	return s
}

// begin has all of them try all that they can, until end.
func (s *strangers) begin(ctx context.Context, targets []*simulator.Server) {
	s.targets = targets
	ctx, s.stop = context.WithCancel(ctx)
	for _, do := range []func(context.Context){s.pose, s.flood, s.crowd, s.browse} {
		s.work.Go(func() {
			for ctx.Err() == nil {
				do(ctx)
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
}

func (s *strangers) end() {
	s.stop()
	s.work.Wait()
}

// pose speaks in the name of each host: inspections, look-ups, calls, scripts, questions about disks with a host key
// of its own.
func (s *strangers) pose(ctx context.Context) {
	nodes, _ := s.d.Nodes(ctx)
	for _, h := range s.targets {
		uuid := nodes[h.Name].UUID
		if uuid == "" {
			uuid = "00000000-0000-4000-8000-000000000000"
		}
		for _, base := range []string{"", "/b/" + strings.Repeat("A", 43)} {
			s.refused.Add(int64(attack(s.t, ctx, s.provisioning, h, uuid, base)))
			status, _ := s.provisioning.Ask(ctx, "POST", ironicURL+base+"/disk", `{"disk": {"name": "/dev/sda"}, "holds": {"kinds": []},
				"hostKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOTicil2/UyYeag2/WrQMJkCnL85l6nMEnZ3of+UBuBn"}`)
			assert.NotEqual(s.t, 204, status, "a stranger may have a disk written to")
		}
		_, script := s.provisioning.Ask(ctx, "GET", scenario.Boot+"/ipxe/"+strings.ReplaceAll(h.MAC, ":", "-"), "")
		assert.NotContains(s.t, script, "/b/", "another's script")
	}
}

// flood declines all addresses in the names of the hosts, and sends what is far too much.
func (s *strangers) flood(ctx context.Context) {
	for _, h := range s.targets {
		assert.NoError(s.t, s.provisioning.Decline(h.MAC, netip.MustParsePrefix("172.22.0.0/24"), netip.MustParseAddr(scenario.Address)))
	}
	s.provisioning.Ask(ctx, "POST", ironicURL+"/v1/continue_inspection", strings.Repeat(" ", 60<<20))
}

// crowd holds as many connections as it gets, without a word, at every service.
func (s *strangers) crowd(ctx context.Context) {
	for _, port := range []string{"6385", "6180", "5000", "9015"} {
		open, _ := s.provisioning.Connect(ctx, scenario.Address+":"+port, 200)
		defer func() {
			for _, conn := range open {
				_ = conn.Close()
			}
		}()
	}
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
	}
}

// browse reads what is for everybody, and asks for what is not.
func (s *strangers) browse(ctx context.Context) {
	for _, url := range []string{
		"https://" + scenario.Address + ":5000/v2/_catalog",
		"https://" + scenario.Address + ":9015/v1/artifacts",
		"https://" + scenario.Address + ":9015/healthz",
		"https://" + scenario.Address + ":10250/pods",
		"https://" + scenario.Address + ":6443/api/v1/secrets",
		scenario.Boot + "/",
		scenario.Boot + "/artifacts/",
		scenario.Boot + "/%2e%2e/%2e%2e/secret/ironic.credentials",
		scenario.Boot + "/var/lib/firstlight/secret/ironic.credentials",
	} {
		s.provisioning.Ask(ctx, "GET", url, "")
	}
	s.owner.Ask(ctx, "GET", "http://"+ownerAppliance.String()+":6180/ipxe/"+strings.ReplaceAll(s.targets[0].MAC, ":", "-"), "")
	s.owner.Ask(ctx, "GET", "https://"+ownerAppliance.String()+":5000/v2/_catalog", "")
}

// reach is where each stranger's connections are accepted. pod is one of the appliance's.
func (s *strangers) reach(ctx context.Context, pod string) map[string][]string {
	reached := map[string][]string{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for name, c := range map[string]struct {
		from  *scenario.Stranger
		other []string
	}{
		"provisioning": {s.provisioning, []string{bmcAppliance.String(), ownerAppliance.String(), pod}},
		"bmc":          {s.bmc, []string{scenario.Address, ownerAppliance.String(), pod}},
		"baremetal":    {s.owner, []string{scenario.Address, bmcAppliance.String(), pod}},
	} {
		for _, at := range c.other {
			for _, port := range ports {
				asking.Go(func() { // where packets are dropped, each takes its whole deadline
					if c.from.Reaches(ctx, at+":"+port) {
						mu.Lock()
						defer mu.Unlock()
						reached[name] = append(reached[name], at+":"+port)
					}
				})
			}
		}
	}

	asking.Wait()
	return reached
}

// secret is a value that is worth stealing: a line of a private key, or a word of a password's or token's length.
var secret = regexp.MustCompile(`[A-Za-z0-9+/=_.$-]{20,}`)

// minted are all secret values that the appliance keeps: words of the files that only root may read, where its keys,
// passwords and tokens are. Certificates, public keys and digests of tokens are no secrets.
func minted(t *testing.T, d *scenario.Scenario) []string {
	t.Helper()
	values := []string{d.Servers.Password()}
	for _, dir := range []string{"/var/lib/firstlight/secret", "/var/lib/firstlight/ssh", "/var/lib/firstlight/ca", "/etc/kubernetes"} {
		require.NoError(t, filepath.WalkDir(d.Sandbox.DataPath(dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.HasSuffix(path, ".pub") {
				return nil // it was not there, or is not any more
			}
			info, err := e.Info()
			if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o044 != 0 {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil
			}
			public := false
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "-----") {
					public = strings.HasPrefix(line, "-----BEGIN") && !strings.Contains(line, "PRIVATE")
				} else if !public && !strings.Contains(line, "certificate-authority") && !strings.Contains(line, "client-certificate") {
					values = append(values, secret.FindAllString(line, -1)...)
				}
			}
			return nil
		}))
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// TestARackIsInstalledBesideStrangers: a third of a rack is installed in peace, one beside a stranger on each of the
// three networks, and one in peace again, so that neither what is warm by then nor what else runs on this machine counts
// for the strangers or against them. It takes about as long; second disks and a machine of somebody else stay as they
// are; and no stranger hears a secret, reaches another network, or is taken for a host.
func TestARackIsInstalledBesideStrangers(t *testing.T) {
	third, patience := 2, 40*time.Minute
	if isFleet() {
		third, patience = 10, 90*time.Minute
	}
	ctx, d := startFleet(t, "hostile", simulator.Config{Hosts: 3*third + 1, BootTime: bootTime}, patience)
	bmc, err := d.AddNetwork(ctx, "eth1")
	require.NoError(t, err)
	owner, err := d.AddNetwork(ctx, "eth2")
	require.NoError(t, err)

	all := d.Servers.Hosts()
	rack, foreign := all[:3*third], all[3*third]
	for _, h := range rack {
		h.SetDisks(h.Disks()[0], simulator.Disk{Name: "/dev/sdb", Serial: "DATA-" + h.Name, Size: 1 << 40, Holds: []string{"gpt", "xfs"}})
	}
	theirs := simulator.Disk{Name: "/dev/sda", Serial: "THEIRS", Size: 1 << 40, Holds: []string{"gpt", "ext4"}}
	foreign.SetDisks(theirs)
	foreign.SetNetworkFirst()
	site := func(hosts []*simulator.Server) string {
		text := threeNetworks + "nodes:\n"
		for _, h := range hosts {
			text += h.SiteEntry(scenario.OS(scenario.ImageA, scenario.ImageSum(scenario.ImageA)), "rootDevice: {serialNumber: "+h.Disks()[0].Serial+"}")
		}
		return text
	}

	require.NoError(t, d.Begin(ctx, threeNetworks))
	_, err = d.Sandbox.AwaitStage(ctx, "site-handed-over", t.Output())
	require.NoError(t, err)
	install := func(upTo int) time.Duration {
		began := time.Now()
		require.NoError(t, d.EditSite(ctx, site(rack[:upTo])))
		follow(t, ctx, d, began, scenario.AllInState(upTo, metal3api.StateProvisioned))
		return time.Since(began)
	}
	before := install(third)

	s := plugInStrangers(t, ctx, d, bmc, owner)
	foreign.Power(true)
	s.begin(ctx, rack[third:2*third])
	beside := install(2 * third)
	pod := strings.TrimSpace(run(t, ctx, d, "kubectl", "-n", "metal3", "get", "pod", "-o", "jsonpath={.items[?(@.spec.hostNetwork!=true)].status.podIP}"))
	pod, _, _ = strings.Cut(pod, " ")
	reached := s.reach(ctx, pod)
	s.end()

	after := install(3 * third)
	peace := (before + after) / 2
	t.Logf("%d hosts: %.0f s and %.0f s in peace, %.0f s beside strangers (%.2f times), who were refused %d times",
		third, before.Seconds(), after.Seconds(), beside.Seconds(), beside.Seconds()/peace.Seconds(), s.refused.Load())
	assert.Less(t, beside, 3*max(before, after), "strangers hold a rack up")
	assert.Positive(t, s.refused.Load())
	assert.Empty(t, reached, "a network does not end at the appliance; its pod is at %s", pod)

	for _, h := range rack {
		require.Eventually(t, func() bool { return h.State() == simulator.OnDisk }, time.Minute+bootTime, 100*time.Millisecond, "%s does not start its system", h.Name)
		disks := h.Disks()
		assert.Equal(t, scenario.ImageSum(scenario.ImageA), disks[0].Image, h.Name)
		assert.Equal(t, []string{"gpt", "xfs"}, disks[1].Holds, h.Name)
		assert.Zero(t, disks[1].Writes, "the second disk of %s", h.Name)
		assert.Equal(t, 1, h.Counters().DiskWrites, h.Name)
	}
	assert.Equal(t, []simulator.Disk{theirs}, foreign.Disks())
	assert.Zero(t, foreign.Counters().DiskWrites)
	keptHostKeys(t, ctx, d, rack)
	heardNoSecret(t, d, s)
}

// keptHostKeys checks that every host has a key of its own, which the appliance knows, and that no private one was on
// the network, in the API or in Ironic's database.
func keptHostKeys(t *testing.T, ctx context.Context, d *scenario.Scenario, rack []*simulator.Server) {
	t.Helper()
	hosts, err := d.Hosts(ctx)
	require.NoError(t, err)
	keys := map[string]bool{}
	for _, h := range rack {
		key := h.Disks()[0].HostKey
		assert.NotEmpty(t, key, h.Name)
		assert.Equal(t, key, hosts[h.Name].Annotations["firstlight.dev/ssh-host-key"], h.Name)
		keys[key] = true
		for _, drive := range h.ReceivedDrives() {
			assert.Contains(t, string(drive), "ssh_keys", "the drive was not read")
			assert.NotContains(t, string(drive), "PRIVATE KEY", "the config drive of %s", h.Name)
		}
		coded := run(t, ctx, d, "kubectl", "-n", "metal3", "get", "secret", h.Name+"-user-data", "-o", "jsonpath={.data.userData}")
		user, err := base64.StdEncoding.DecodeString(strings.TrimSpace(coded))
		require.NoError(t, err)
		assert.Contains(t, string(user), "ssh_keys")
		assert.NotContains(t, string(user), "PRIVATE KEY", "the user data of %s", h.Name)
	}
	assert.Len(t, keys, len(rack), "two hosts have one key")

	database, err := filepath.Glob(d.Sandbox.DataPath("/var/lib/ironic/ironic.sqlite*"))
	require.NoError(t, err)
	require.NotEmpty(t, database)
	for _, file := range database {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "OPENSSH PRIVATE KEY", file)
	}
}

// heardNoSecret looks for every secret of the appliance in all that the strangers were answered.
func heardNoSecret(t *testing.T, d *scenario.Scenario, s *strangers) {
	t.Helper()
	heard := s.provisioning.Heard() + s.bmc.Heard() + s.owner.Heard()
	values := minted(t, d)
	for i, value := range values {
		if strings.Contains(heard, value) {
			t.Errorf("a stranger heard the secret %d of %d", i, len(values)) // its value belongs into no log
		}
	}
	for _, word := range []string{"PRIVATE KEY", "hashed_passwd", "user_data", "agent_token", "configdrive"} {
		assert.NotContains(t, heard, word)
	}
	t.Logf("%d secret values are in none of the %d bytes that strangers heard", len(values), len(heard))
	assert.Greater(t, len(values), 20, "the appliance's secrets were not found")
}
