package virtualrack

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/site"
)

// newSystemRack is a rack whose appliance is installed on a system, with fakes of all that it is made of.
func newSystemRack(t *testing.T) (Client, Order) {
	t.Helper()
	o := DefaultOrder()
	o.System, o.NICModel = filepath.Join(t.TempDir(), "debian.raw"), "e1000e"
	require.NoError(t, os.WriteFile(o.System, []byte("a disk"), 0o600))
	program := filepath.Join(t.TempDir(), "firstlight")
	require.NoError(t, os.WriteFile(program, []byte("the command"), 0o755))
	return newRackOfProgram(t, o, program), o
}

// TestASystemIsToldToInstall: what cloud-init finds beside the system's own disk is all that an installation takes.
func TestASystemIsToldToInstall(t *testing.T) {
	c, o := newSystemRack(t)
	seed, err := os.Open(filepath.Join(c.Dir, seedImage))
	require.NoError(t, err)
	defer seed.Close()
	info, err := seed.Stat()
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "the site has the BMCs' passwords")
	table, err := gpt.ReadPrimary(seed)
	require.NoError(t, err)
	part, ok := table.Find(seedLabel)
	require.True(t, ok)
	volume, err := fat.Open(io.NewSectionReader(seed, part.Offset(), part.Size()))
	require.NoError(t, err)
	read := func(name string) []byte {
		text, err := volume.ReadFile("/" + name)
		require.NoError(t, err)
		return text
	}

	assert.Equal(t, "the command", string(read("firstlight")))
	_, problems := site.Load("site.yaml", read("site.yaml"))
	require.NoError(t, problems.Err())
	var does struct {
		Keys   []string `yaml:"ssh_authorized_keys"`
		RunCmd []string `yaml:"runcmd"`
	}
	require.NoError(t, yaml.Unmarshal(read("user-data"), &does))
	assert.Len(t, does.Keys, 1)
	require.Len(t, does.RunCmd, 1)
	assert.Contains(t, does.RunCmd[0], "mount -o ro LABEL=CIDATA /mnt\n")
	assert.Contains(t, does.RunCmd[0], "install --image /dev/disk/by-id/virtio-stick --site /mnt/site.yaml\n")
	var network struct {
		Ethernets map[string]struct {
			Match     map[string]string
			Addresses []string
		}
	}
	require.NoError(t, yaml.Unmarshal(read("network-config"), &network))
	require.Len(t, network.Ethernets, 1, "the appliance's interfaces are not the machine's to configure")
	own := network.Ethernets["own"]
	assert.Equal(t, []string{"172.25.0.1/24"}, own.Addresses)
	cards := Plan(o).Appliance.Cards
	assert.Equal(t, map[string]string{"macaddress": cards[len(cards)-1].MAC.String()}, own.Match)
}

// TestASystemIsStartedAndFollowed: it starts from its own disk, and is followed by what cloud-init prints. One that
// refuses the installation ends the rack.
func TestASystemIsStartedAndFollowed(t *testing.T) {
	c, o := newSystemRack(t)
	c.mustStart(t)
	m := c.becomes(t, 0, "the machine is followed", func(m Machine) bool { return m.Phase == PhaseNotInstalled })
	assert.Regexp(t, `serial=system,bootindex=1 .*serial=stick,bootindex=2 .*serial=seed,bootindex=3 `, m.Command)
	assert.Contains(t, m.Command, "-device e1000e,mac=")
	assert.NoFileExists(t, filepath.Join(c.Dir, "qemu-io.log"), "nothing is written on the stick")
	s, err := c.Status(t.Context())
	require.NoError(t, err)
	assert.True(t, s.Over && s.Failed && s.Dead)
	assert.Equal(t, "the appliance is not installed; `firstlight lab console appliance` has the reasons", s.Text)

	_, err = c.SSH(System)
	require.NoError(t, err)
	_, err = c.SSH("another")
	require.Error(t, err)
	text, err := os.ReadFile(filepath.Join(c.Dir, sshDir, configFile))
	require.NoError(t, err)
	assert.Contains(t, string(text), "Host system\n\tUser root\n")
	assert.True(t, isRackFile(systemImage) && isRackFile(seedImage))

	other := o
	other.System = "/nonexistent"
	assert.ErrorContains(t, checkSystem(other), "no such file or directory; --system names")
	other = o
	other.StickGiB = 4
	require.NoError(t, os.Truncate(o.System, 5<<30))
	assert.ErrorContains(t, checkSystem(other), "debian.raw has 5120 MiB and the appliance's disk 4 GiB")
	other.NICModel = "ne2000"
	assert.ErrorContains(t, other.Check(), `cards of model "ne2000"; want virtio-net-pci, `)
}

// TestConsoleFollowsASystem from its kernel to an appliance that is about to be heard of.
func TestConsoleFollowsASystem(t *testing.T) {
	c := phaseTracker{onSystem: true}
	c.powerOn()
	for _, step := range []struct {
		line, phase string
		percent     int
	}{
		{"GRUB loading.Welcome to GRUB!", PhaseFirmware, 0},
		{"[    0.000000] Linux version 6.12.48+deb13-cloud-amd64", PhaseSystem, 0},
		{"Welcome to Debian GNU/Linux 13 (trixie)!", PhaseSystem, 0},
		{"firstlight lab: installing", PhaseInstalling, 5},
		{"copy site.yaml to /var/lib/firstlight/site", PhaseInstalling, 5},
		{"firstlight lab: installed", PhaseStarting, 10},
		{"[    0.000000] Linux version 6.12.48+deb13-cloud-amd64", PhaseSystem, 0},
		{"firstlight lab: not installed", PhaseNotInstalled, 0},
	} {
		c.handleLine(step.line)
		phase, percent := applianceState(true, c, nil)
		assert.Equal(t, step.phase, phase, step.line)
		assert.Equal(t, step.percent, percent, step.line)
		assert.Equal(t, step.phase == PhaseNotInstalled, c.systemFailure() != "", step.line)
	}
}
