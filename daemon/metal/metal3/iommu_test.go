package metal3

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
)

// TestOnlyANodeThatAsksStartsWithItsIOMMU: by itself, or by a cluster that names it with sriov.
func TestOnlyANodeThatAsksStartsWithItsIOMMU(t *testing.T) {
	s, problems := site.Load("site.yaml", []byte(`
nodes:
- {name: plain, macs: ["52:54:00:00:00:01"]}
- {name: asks, macs: ["52:54:00:00:00:02"], iommu: true}
- {name: named, macs: ["52:54:00:00:00:03"]}
- {name: by-mac, macs: ["52:54:00:00:00:04", "52:54:00:00:00:05"]}
- {name: without, macs: ["52:54:00:00:00:06"]}
clusters:
- name: c
  controlPlane: [{node: without}]
  workers: [{node: named, sriov: true}, {mac: "52:54:00:00:00:05", sriov: true}]
`))
	require.Empty(t, problems)
	var asked []string
	for _, n := range s.WithDefaults().Nodes {
		text, err := userData(s.WithDefaults(), n, Appliance{Key: "ssh-ed25519 AAAA"})
		require.NoError(t, err)
		if assert.Equal(t, n.IOMMU, strings.Contains(text, stick.IOMMUMark), n.Name); n.IOMMU {
			asked = append(asked, string(n.Name))
		}
	}
	assert.Equal(t, []string{"asks", "named", "by-mac"}, asked)
}

// TestANodeRestartsOnceForItsIOMMU runs the script over a root of its own: the shell is real, what it calls is noted.
func TestANodeRestartsOnceForItsIOMMU(t *testing.T) {
	for _, c := range []struct {
		name, cmdline string
		programs      []string
		restarts      int
		drop          string
	}{
		{"the stick's image", "root=UUID=u", nil, 1, ""},
		{"an image with GRUB's own tools", "root=UUID=u", []string{"update-grub"}, 1, "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt\"\n"},
		{"it is on already", "root=UUID=u intel_iommu=on", nil, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/default"), 0o755))
			require.NoError(t, os.MkdirAll(filepath.Join(root, "bin"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, "cmdline"), []byte(c.cmdline), 0o644))
			for _, name := range append([]string{"systemctl"}, c.programs...) {
				program := "#!/bin/sh\necho " + name + " $* >>" + root + "/called\n"
				require.NoError(t, os.WriteFile(filepath.Join(root, "bin", name), []byte(program), 0o755))
			}
			command := bootCommands(site.Node{IOMMU: true})[0].([]string)
			script := strings.NewReplacer("/etc/", root+"/etc/", "/proc/cmdline", root+"/cmdline").Replace(command[2])
			for range 3 { // boots
				cmd := exec.Command(command[0], command[1], script)
				cmd.Env = []string{"PATH=" + root + "/bin:/usr/bin:/bin"}
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, string(out))
			}
			called, _ := os.ReadFile(filepath.Join(root, "called")) // none was
			assert.Equal(t, c.restarts, strings.Count(string(called), "systemctl reboot"), string(called))
			assert.FileExists(t, filepath.Join(root, stick.IOMMUMark))
			drop, _ := os.ReadFile(filepath.Join(root, "etc/default/grub.d/firstlight-iommu.cfg")) // none is ""
			assert.Equal(t, c.drop, string(drop))
		})
	}
}
