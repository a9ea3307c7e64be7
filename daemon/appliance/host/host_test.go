package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEtWjZ1pWv0lKxI3mN6q5x1rV0m1xq3pX5k2h1rYqk0G somebody@example"

// units stands for systemctl: which units run, and what was asked of it.
type units struct {
	running map[string]bool
	asked   []string
	fails   error // of "restart"
}

func (u *units) run(_ context.Context, name string, args ...string) (string, error) {
	u.asked = append(u.asked, name+" "+strings.Join(args, " "))
	unit := args[len(args)-1]
	switch args[0] {
	case "is-active":
		if !u.running[unit] {
			return "inactive", errors.New("exit status 3")
		}
	case "restart":
		return "", u.fails
	case "start":
		u.running[unit] = true
	case "stop":
		u.running[unit] = false
	}
	return "", nil
}

func newHost(t *testing.T) (*Host, *units) {
	u := &units{running: map[string]bool{}}
	return &Host{Log: slog.New(slog.DiscardHandler), Root: t.TempDir(), Run: u.run}, u
}

func (h *Host) put(t *testing.T, path, text string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(h.path(path)), 0o755))
	require.NoError(t, os.WriteFile(h.path(path), []byte(text), 0o644))
}

func quiet(string) {}

// stageHolds acts as the runner does: ask, act, ask again; and again, when nothing may be left to do.
func stageHolds(t *testing.T, done func(context.Context) error, do func(context.Context, bringup.Report) error) {
	t.Helper()
	if done(t.Context()) != nil {
		require.NoError(t, do(t.Context(), quiet))
	}
	require.NoError(t, done(t.Context()))
}

func TestData(t *testing.T) {
	for _, c := range []struct {
		name      string
		boot      bool
		record    *stick.StorageInfo
		waits     bool
		permanent bool
		note      string
	}{
		{name: "on the stick", boot: true, record: &stick.StorageInfo{State: stick.StorageData}},
		{name: "sealed", boot: true, record: &stick.StorageInfo{State: stick.StorageData, Seal: stick.SealTPM, KeyFile: true}, note: "this machine's TPM opens it, elsewhere its key file"},
		{name: "sealed, no key file", boot: true, record: &stick.StorageInfo{State: stick.StorageData, Seal: stick.SealTPM}, note: "firstlightd key-file"},
		{name: "key file", boot: true, record: &stick.StorageInfo{State: stick.StorageData, Seal: stick.SealKeyFile}, note: "on the medium FL-KEY opens it"},
		{name: "key next to it", boot: true, record: &stick.StorageInfo{State: stick.StorageData, Seal: stick.SealBeside, SealNote: "No bank."}, note: "and restart. No bank."},
		{name: "of an earlier version", boot: true, record: &stick.StorageInfo{State: stick.StorageData, Seal: stick.SealNone}, note: "DATA is not encrypted"},
		{name: "nothing opens it", boot: true, record: &stick.StorageInfo{State: stick.StorageLocked, Reason: "DATA is not opened"}, permanent: true},
		{name: "storage still at work", boot: true, waits: true},
		{name: "no room: in memory, and said so", boot: true, record: &stick.StorageInfo{State: stick.StorageVolatile, Reason: "the stick is too small"}, note: "the stick is too small"},
		{name: "cannot be used: nothing goes on", boot: true, record: &stick.StorageInfo{State: stick.StorageBroken, Device: "/dev/sda6", Reason: "bad superblock"}, permanent: true},
		{name: "not started from a stick", note: "Not started from a stick"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, _ := newHost(t)
			if c.boot {
				h.put(t, stick.BootInfoFile, "{}")
			}
			if c.record != nil {
				require.NoError(t, stick.Save(h.path(stick.StorageInfoFile), *c.record))
			}
			err := h.DataDone(t.Context())
			assert.Equal(t, c.waits, bringup.IsWait(err), "%v", err)
			assert.Equal(t, c.permanent, bringup.IsPermanent(err), "%v", err)
			if !c.waits && !c.permanent {
				require.NoError(t, err)
			}
			notes := strings.Join(h.Notes(), "\n")
			if c.note == "" {
				assert.Empty(t, notes)
			}
			assert.Contains(t, notes, c.note)
		})
	}
}

func TestSite(t *testing.T) {
	h, _ := newHost(t)
	var given []*site.Site
	h.OnSite = func(s *site.Site) { given = append(given, s) }
	stageHolds(t, h.SiteDone, h.SiteDo) // none at all
	require.Len(t, given, 1)
	assert.Equal(t, "172.22.0.1", given[0].Networks.Provisioning.Address.String())

	reload := func() {
		require.NoError(t, h.Reload())
		require.Error(t, h.SiteDone(t.Context()))
	}
	h.put(t, BakedSite, "name: baked")
	reload()
	stageHolds(t, h.SiteDone, h.SiteDo)
	assert.EqualValues(t, "baked", h.Site().Name)

	h.put(t, stick.SiteDir+"/"+SiteName, "name: edited")
	require.NoError(t, h.SiteDone(t.Context()), "an edit is taken up when asked for, not by chance")
	reload()
	stageHolds(t, h.SiteDone, h.SiteDo)
	assert.EqualValues(t, "edited", h.Site().Name)

	h.put(t, stick.SiteDir+"/"+SiteName, "name: edited\nnmae: wrong\nclusterz: 3\n")
	said := h.Reload()
	require.Error(t, h.SiteDone(t.Context()))
	err := h.SiteDo(t.Context(), quiet)
	require.True(t, bringup.IsPermanent(err), "%v", err)
	assert.Len(t, strings.Split(err.Error(), "\n"), 2, "not every mistake is named: %v", err)
	assert.Contains(t, err.Error(), "site.yaml:2: ")
	assert.Equal(t, err, said, "who asked for it is not told the same")
	assert.EqualValues(t, "edited", h.Site().Name, "the last good site is gone")
	assert.Error(t, h.SiteDone(t.Context()))

	h.put(t, stick.SiteDir+"/"+SiteName, strings.Repeat("#", site.MaxSize+2))
	assert.True(t, bringup.IsPermanent(h.SiteDo(t.Context(), quiet)), "a document larger than any site was read")
}

// TestASiteThatIsNotMountedIsNoSite: with the document on it goes what it asks for, such as signed images.
func TestASiteThatIsNotMountedIsNoSite(t *testing.T) {
	h, _ := newHost(t)
	h.OnSite = func(*site.Site) { t.Error("a site came into effect") }
	h.put(t, BakedSite, "name: baked")
	h.put(t, stick.BootInfoFile, "{}")
	require.ErrorContains(t, h.SiteDo(t.Context(), quiet), "was not mounted", "no record says that it was")
	for _, state := range []stick.StorageState{stick.StorageData, stick.StorageVolatile} {
		require.NoError(t, stick.Save(h.path(stick.StorageInfoFile), stick.StorageInfo{State: state}))
		err := h.SiteDo(t.Context(), quiet)
		require.ErrorContains(t, err, "SITE, where site.yaml is, was not mounted when this machine started; restart")
		assert.False(t, bringup.IsPermanent(err), "it is looked again: somebody may mount it")
		require.Error(t, h.SiteDone(t.Context()))
		require.ErrorContains(t, h.Reload(), "was not mounted")
	}

	h.OnSite = nil
	require.NoError(t, stick.Save(h.path(stick.StorageInfoFile), stick.StorageInfo{State: stick.StorageData, Site: true}))
	h.put(t, "/proc/self/mountinfo", "")
	require.ErrorContains(t, h.SiteDo(t.Context(), quiet), "is not mounted any more; restart", "it was when this machine started")
	h.put(t, "/proc/self/mountinfo", "30 28 8:3 / "+stick.SiteDir+" ro - vfat /dev/sda3 ro\n")
	stageHolds(t, h.SiteDone, h.SiteDo)
	assert.EqualValues(t, "baked", h.Site().Name)
}

// TestASiteInUseStaysInUse: a version that refuses more than the one before starts with the site that it finds.
func TestASiteInUseStaysInUse(t *testing.T) {
	h, _ := newHost(t)
	h.put(t, BakedSite, "nodes:\n- name: a\n  macs: ['52:54:00:00:00:01']\n  os: {image: x.iso}\n"+
		"- name: b\n  macs: ['52:54:00:00:00:02']\n  os: {image: y.raw.gz}\n")
	stageHolds(t, h.SiteDone, h.SiteDo)
	assert.Equal(t, "x.iso", h.Site().Nodes[0].OS.Image)
	assert.Equal(t, []string{`The site is in use as it is, and has what would be refused in a new one: site.yaml:4: ` +
		`nodes[0].os.image: "x.iso" is started from a drive, not written to a disk; use the disk image of that system, qcow2 or ` +
		`raw (and 1 more). firstlight site validate names all.`}, h.Notes())

	h.put(t, BakedSite, "name: other\n")
	require.NoError(t, h.Reload())
	stageHolds(t, h.SiteDone, h.SiteDo)
	assert.Empty(t, h.Notes())
}

func TestIdentity(t *testing.T) {
	const other = "0123456789abcdef0123456789abcdef"
	h, _ := newHost(t)
	stageHolds(t, h.IdentityDone, h.IdentityDo)
	id := h.MachineID()
	require.Len(t, id, 32)
	assert.Equal(t, "firstlight-"+id[:4], h.Hostname())

	require.NoError(t, os.Remove(h.path(machineIDPath))) // the next boot's fresh overlay
	require.NoError(t, os.Remove(h.path(hostnamePath)))
	stageHolds(t, h.IdentityDone, h.IdentityDo)
	assert.Equal(t, id, h.MachineID(), "the identity changed over a boot")

	for _, rubbish := range []string{other, "", "uninitialized\n", strings.Repeat("0", 32), id[:31]} {
		require.NoError(t, os.Remove(h.path(machineIDPath)))
		h.put(t, machineIDPath, rubbish)
		stageHolds(t, h.IdentityDone, h.IdentityDo)
		assert.Equal(t, id, h.MachineID(), "DATA does not win over %q", rubbish)
	}

	second, _ := newHost(t)
	second.put(t, machineIDPath, other+"\n") // as the initramfs left it
	stageHolds(t, second.IdentityDone, second.IdentityDo)
	assert.Equal(t, other, readID(second.dataPath(stick.MachineIDName)))
	assert.NotEqual(t, id, second.MachineID())

	h.site = &site.Site{Name: "rack-7"}
	stageHolds(t, h.IdentityDone, h.IdentityDo)
	assert.Equal(t, "rack-7", h.Hostname())
}

func TestSSH(t *testing.T) {
	h, u := newHost(t)
	stageHolds(t, h.SSHDone, h.SSHDo)
	assert.False(t, u.running[sshUnit], "sshd runs though nobody may log in")
	assert.Contains(t, strings.Join(h.Notes(), ""), "Nobody can log in over the network")

	h.site = &site.Site{Access: site.Access{SSHKeys: []site.SSHKey{key}}}
	stageHolds(t, h.SSHDone, h.SSHDo)
	assert.True(t, u.running[sshUnit])
	assert.Empty(t, h.Notes())
	keys, err := os.ReadFile(h.dataPath(authorizedName))
	require.NoError(t, err)
	assert.Contains(t, string(keys), key)
	hostKey, err := os.ReadFile(h.dataPath(hostKeyName))
	require.NoError(t, err)

	// A key added by hand does not stay, a host key does; a torn one is minted anew.
	h.put(t, stick.DataDir+"/"+authorizedName, string(keys)+"ssh-ed25519 AAAA intruder\n")
	require.Error(t, h.SSHDone(t.Context()))
	stageHolds(t, h.SSHDone, h.SSHDo)
	again, err := os.ReadFile(h.dataPath(hostKeyName))
	require.NoError(t, err)
	assert.Equal(t, hostKey, again)
	h.put(t, stick.DataDir+"/"+hostKeyName, string(hostKey[:100]))
	stageHolds(t, h.SSHDone, h.SSHDo)

	u.running[sshUnit] = false // killed
	require.Error(t, h.SSHDone(t.Context()))
	stageHolds(t, h.SSHDone, h.SSHDo)

	h.site = &site.Site{}
	stageHolds(t, h.SSHDone, h.SSHDo)
	assert.False(t, u.running[sshUnit], "the last key went, sshd stayed")

	assert.False(t, u.running[shellUnit])
	h.site = &site.Site{Access: site.Access{Console: "shell"}}
	stageHolds(t, h.SSHDone, h.SSHDo)
	assert.True(t, u.running[shellUnit])
	assert.False(t, u.running[sshUnit])
	h.site = &site.Site{}
	stageHolds(t, h.SSHDone, h.SSHDo)
	assert.False(t, u.running[shellUnit], "the site takes the shell back, and it stays")

	for _, path := range []string{hostKeyName, nextHostKeyName, authorizedName} {
		info, err := os.Stat(h.dataPath(path))
		require.NoError(t, err)
		assert.Zero(t, info.Mode().Perm()&0o077, "%s is open to others", path)
	}
}

// The machine's clock is not touched by this test: every offset is below a millisecond.
func TestClockAsksTheSitesServersInTurn(t *testing.T) {
	h, _ := newHost(t)
	require.NoError(t, h.ClockDone(t.Context()), "no server to ask, no image: nothing to do")

	s, problems := site.Load("site.yaml", []byte("networks: {baremetal: {ntp: [dead.example, 10.0.0.5]}, provisioning: {ntp: [172.22.0.1]}}"))
	require.NoError(t, problems.Err())
	h.site = s
	var asked []string
	answer := map[string]Offset{"10.0.0.5": {Ahead: 10 * time.Microsecond, Stratum: 2}}
	h.Query = func(server string, _ time.Duration) (Offset, error) {
		asked = append(asked, server)
		if o, ok := answer[server]; ok {
			return o, nil
		}
		return Offset{}, errors.New("no answer")
	}
	stageHolds(t, h.ClockDone, h.ClockDo)
	assert.Equal(t, []string{"dead.example", "10.0.0.5"}, asked, "the appliance asked itself")
	assert.Equal(t, 2, h.TimeSource().Stratum)
	assert.Empty(t, h.Notes())

	answer, asked = nil, nil
	require.NoError(t, h.Reload())
	stageHolds(t, h.ClockDone, h.ClockDo)
	assert.Len(t, asked, 2)
	assert.Contains(t, strings.Join(h.Notes(), ""), "No time server answers", "a site without time comes up, and says so")
}

// TestAClockOfAnotherSystemIsLeftAlone: an installed appliance says how far it is off, and comes up.
func TestAClockOfAnotherSystemIsLeftAlone(t *testing.T) {
	h, _ := newHost(t)
	s, problems := site.Load("site.yaml", []byte("networks: {baremetal: {ntp: [10.0.0.5]}}"))
	require.NoError(t, problems.Err())
	h.site = s
	ahead := 3 * time.Second
	h.Query = func(string, time.Duration) (Offset, error) { return Offset{Ahead: ahead, Stratum: 2}, nil }
	h.Move = func(time.Duration) error { return fmt.Errorf("set clock: %w", unix.EPERM) }
	stageHolds(t, h.ClockDone, h.ClockDo)
	assert.Contains(t, strings.Join(h.Notes(), ""), "The clock differs by 3s from time server 10.0.0.5")
	assert.Zero(t, h.TimeSource().Stratum, "it is not worth what the server says")

	ahead = 3 * time.Millisecond
	require.NoError(t, h.Reload())
	stageHolds(t, h.ClockDone, h.ClockDo)
	assert.Empty(t, h.Notes())
	assert.Equal(t, 2, h.TimeSource().Stratum)

	h.Move = func(time.Duration) error { return errors.New("broken") }
	require.NoError(t, h.Reload())
	assert.ErrorContains(t, h.ClockDo(t.Context(), func(string) {}), "broken")
}

func TestClockBeforeTheImage(t *testing.T) {
	h, _ := newHost(t)
	h.put(t, "/usr/lib/os-release", "")
	future := time.Now().AddDate(10, 0, 0)
	require.NoError(t, os.Chtimes(h.path("/usr/lib/os-release"), future, future))
	assert.ErrorContains(t, h.ClockDone(t.Context()), "before this image was made")
}

// TestALeaseOutlivesASilentServer: until it ends nothing of it is given up (RFC 2131 4.4.5).
func TestALeaseOutlivesASilentServer(t *testing.T) {
	now := time.Now()
	have := lease{server: "10.0.0.1", dns: []string{"10.0.0.2"}, due: now, until: now.Add(time.Hour)}

	kept := have.afterSilence(now)
	assert.Equal(t, have.server, kept.server)
	assert.Equal(t, have.dns, kept.dns)
	assert.Equal(t, have.until, kept.until)
	assert.Equal(t, now.Add(leaseTry), kept.due, "it is asked for again a little later")

	ended := have.afterSilence(have.until)
	assert.Equal(t, lease{due: have.until.Add(leaseTry)}, ended)
}

// TestASilentServerKeepsItsLease: no other server is asked before seven eighths of it have passed (RFC 2131 4.4.5),
// unless its own took the address back.
func TestASilentServerKeepsItsLease(t *testing.T) {
	given := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	ack, err := dhcpv4.New(dhcpv4.WithLeaseTime(uint32((8 * time.Hour).Seconds())))
	require.NoError(t, err)
	l := lease{response: &nclient4.Lease{ACK: ack}, until: given.Add(8 * time.Hour)}
	silent, taken := errors.New("nobody answered"), &nclient4.ErrNak{Offer: ack, Nak: ack}
	assert.False(t, l.mayAskOthers(silent, given.Add(4*time.Hour)))
	assert.False(t, l.mayAskOthers(silent, given.Add(7*time.Hour-time.Second)))
	assert.True(t, l.mayAskOthers(silent, given.Add(7*time.Hour)))
	assert.True(t, l.mayAskOthers(fmt.Errorf("renew: %w", taken), given.Add(time.Hour)))
}

// TestTheSiteIsFilledInOnce: parts ask for it at every packet and for every node.
func TestTheSiteIsFilledInOnce(t *testing.T) {
	h, _ := newHost(t)
	assert.Equal(t, site.Name("firstlight"), h.Site().Name, "before it was read")
	h.site = &site.Site{Name: "rack-7"}
	first := h.Site()
	assert.Equal(t, site.Name("rack-7"), first.Appliance.Hostname)
	assert.Same(t, first, h.Site())
	h.site = &site.Site{Name: "rack-8"}
	assert.Equal(t, site.Name("rack-8"), h.Site().Appliance.Hostname, "the site was read again")
	assert.Equal(t, site.Name("rack-7"), first.Appliance.Hostname)
}
