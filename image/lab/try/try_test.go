package try

import (
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/simulator"
)

// TestMachinesAreRefused: in one line, with what to do.
func TestMachinesAreRefused(t *testing.T) {
	fit := func(change func(*machine)) machine {
		m := machine{Host: container.Host{
			Root:        true,
			Cgroups:     true,
			MemoryMiB:   leastMemoryMiB,
			DiskMiB:     leastDiskMiB,
			FileSystems: "nodev\toverlay\n\tsquashfs\n",
		}}
		change(&m)
		return m
	}
	assert.NoError(t, fit(func(*machine) {}).refuse())
	for want, change := range map[string]func(*machine){
		"the kernel has no pid namespaces":                                                func(m *machine) { m.Namespaces = []string{"pid"} },
		"no control groups are mounted below /sys/fs/cgroup; systemd mounts them at boot": func(m *machine) { m.Cgroups = false },
		"nsenter is not installed; apt-get install iproute2 util-linux coreutils":         func(m *machine) { m.programs = []string{"nsenter"} },
		"the kernel has no overlay or no squashfs; modprobe -a overlay squashfs loop":     func(m *machine) { m.FileSystems = "nodev\toverlay\n" },
		"3071 MiB of memory are available, 3072 are needed; end something else":           func(m *machine) { m.MemoryMiB-- },
		"4095 MiB are free, 4096 are needed; name another directory with --dir":           func(m *machine) { m.DiskMiB-- },
	} {
		assert.EqualError(t, fit(change).refuse(), want)
	}
}

// TestTheSiteIsOne that the appliance takes, with every server, also with none.
func TestTheSiteIsOne(t *testing.T) {
	for _, n := range []int{0, 1, 3} {
		order := Order{Servers: n, IPv6: n == 1}
		servers, err := simulator.Start(simulator.Config{
			Hosts:    n,
			Boot:     order.bootServer(),
			BMC:      netip.MustParseAddr("127.26.0.1"),
			Password: "a-password",
		})
		require.NoError(t, err)
		text, err := siteDocument(order.provisioningNetwork(), servers.Hosts())
		require.NoError(t, servers.Close())
		require.NoError(t, err)
		read, problems := site.Load(siteFile, []byte(text))
		require.NoError(t, problems.Err())
		assert.Len(t, read.Nodes, n)
	}
}

func TestHowFarARackIs(t *testing.T) {
	d := status.Document{Summary: "waits for a link", Stages: []status.Stage{
		{Name: "links-up", State: status.StateWorking},
		{Name: "clock-set", State: status.StateReady},
		{Name: "kpa-ready", State: status.StateWaiting, AfterReady: true},
	}}
	assert.False(t, IsDone(d))
	assert.Equal(t, "1 of 2 stages; waits for a link", Describe(d))

	d.Stages[0].State = status.StateReady
	d.Nodes = []status.Node{{Name: "node1", State: "provisioned"}, {Name: "node2", State: "registering", Error: "refused"}}
	assert.False(t, IsDone(d))
	assert.Equal(t, "Ready, node1 provisioned, node2 registering (refused)", Describe(d))

	d.Nodes = d.Nodes[:1]
	assert.True(t, IsDone(d))
	assert.False(t, IsDone(status.Document{}), "it has not looked yet")
}

func TestARackIsMadeOnce(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	require.NoError(t, os.WriteFile(image, []byte("hsqs"), 0o644))
	r := Rack{Dir: filepath.Join(t.TempDir(), "rack")}
	_, err := r.Order()
	assert.ErrorIs(t, err, NoRack)
	_, err = r.Processes()
	assert.ErrorIs(t, err, NoRack)

	order := Order{Image: image, Servers: 2}
	require.NoError(t, r.Create(order))
	require.NoError(t, r.Create(order))
	_, err = r.Processes()
	assert.ErrorIs(t, err, NotRunning)
	assert.ErrorContains(t, r.Create(Order{Image: image, Servers: 3}), "servers is 2, asked is 3")
	assert.ErrorContains(t, (Rack{Dir: t.TempDir()}).Create(Order{Image: image, Servers: MaxServers + 1}), "51 servers")

	taken := Rack{Dir: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(taken.Dir, "thesis.txt"), nil, 0o644))
	assert.ErrorContains(t, taken.Create(order), "is not empty and holds no rack, but thesis.txt")
	assert.Error(t, taken.Remove(t.Context(), nil))
	assert.FileExists(t, filepath.Join(taken.Dir, "thesis.txt"))

	own, err := os.Stat(r.path(stickImage))
	require.NoError(t, err)
	assert.EqualValues(t, 2, own.Sys().(*syscall.Stat_t).Nlink, "a build puts another file in its place")
	require.NoError(t, r.Remove(t.Context(), nil))
	assert.NoDirExists(t, r.Dir)
}

// TestNothingButWhatARackLeavesIsRemovedWithOne: files of its names may be somebody's.
func TestNothingButWhatARackLeavesIsRemovedWithOne(t *testing.T) {
	image := filepath.Join(t.TempDir(), stickImage)
	require.NoError(t, os.WriteFile(image, []byte("hsqs"), 0o644))
	assert.ErrorContains(t, Rack{Dir: filepath.Dir(image)}.Create(Order{Image: image}), "holds no rack, but "+stickImage)
	assert.FileExists(t, image, "the image itself")

	for _, file := range []string{dataDir + "/thesis.txt", siteDir + "/site.yaml", consoleLog} {
		r := Rack{Dir: t.TempDir()}
		require.NoError(t, os.MkdirAll(filepath.Dir(r.path(file)), 0o755))
		require.NoError(t, os.WriteFile(r.path(file), nil, 0o644))
		assert.ErrorContains(t, r.Create(Order{Image: image}), "is not empty and holds no rack")
		assert.FileExists(t, r.path(file))
	}

	cut := Rack{Dir: t.TempDir()} // while its image was copied
	require.NoError(t, os.Mkdir(cut.path(siteDir), 0o700))
	require.NoError(t, os.WriteFile(cut.path(stickImage), []byte("hs"), 0o600))
	require.NoError(t, os.Chmod(cut.Dir, 0o755))
	assert.ErrorContains(t, cut.Create(Order{Image: image}), "others than you may look into "+cut.Dir)
	require.NoError(t, os.Chmod(cut.Dir, 0o700))
	require.NoError(t, cut.Create(Order{Image: image}))
}

// TestNobodyButTheApplianceIsEntered: its number may be another process's by now.
func TestNobodyButTheApplianceIsEntered(t *testing.T) {
	r := Rack{Dir: t.TempDir()}
	self, err := process.Identify(os.Getpid())
	require.NoError(t, err)
	before := self
	before.Start--
	for _, c := range []struct {
		appliance process.ID
		entered   bool
	}{{self, true}, {before, false}, {process.ID{}, false}} {
		require.NoError(t, writeJSON(r.path(runningFile), Processes{Supervisor: self, Appliance: c.appliance}))
		_, err := r.Command(t.Context(), "true")
		assert.Equal(t, c.entered, err == nil, "%v", err)
	}
}
