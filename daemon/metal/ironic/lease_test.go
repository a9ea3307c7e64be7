package ironic

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheRamdiskSpeaksFromTheNICThatItBootedFrom: with two NICs on one network, that one's route is preferred. It is
// the script of the ramdisk, with other paths and an ip that prints what it is asked for.
func TestTheRamdiskSpeaksFromTheNICThatItBootedFrom(t *testing.T) {
	text, err := os.ReadFile("../../../overlays/ramdisk/usr/lib/firstlight/lease")
	require.NoError(t, err)
	for name, cmdline := range map[string]string{
		"a script of Ironic's":      "kernel text BOOTIF=52:54:00:00:00:01 initrd=ramdisk",
		"a script of the appliance": "kernel BOOTIF=01-52-54-00-00-00-01",
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			write := func(path, content string, mode os.FileMode) {
				path = filepath.Join(top, path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(content), mode))
			}
			write("cmdline", cmdline+"\n", 0o644)
			write("net/eth0/address", "52:54:00:00:00:02\n", 0o644)
			write("net/eth1/address", "52:54:00:00:00:01\n", 0o644)
			write("bin/ip", "#!/bin/sh\necho \"$*\"\n", 0o755)
			script := strings.NewReplacer("/proc/cmdline", top+"/cmdline", "/sys/class/net", top+"/net", "/etc/resolv.conf", top+"/resolv.conf").Replace(string(text))
			asked := ""
			for _, nic := range []string{"eth0", "eth1"} {
				cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "lease", "bound")
				cmd.Env = append(os.Environ(), "PATH="+top+"/bin:"+os.Getenv("PATH"), "interface="+nic, "ip=172.22.0.9", "mask=24", "router=172.22.0.2")
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s", out)
				asked += string(out)
			}
			assert.Equal(t, `addr replace 172.22.0.9/24 dev eth0 metric 200
route replace default via 172.22.0.2 dev eth0 metric 200
addr replace 172.22.0.9/24 dev eth1 metric 100
route replace default via 172.22.0.2 dev eth1 metric 100
`, asked)
		})
	}
}

// TestADiscNamesTheAddressOfTheRamdisk: the NIC that it names gets it, once it is there, and nobody is asked for
// another.
func TestADiscNamesTheAddressOfTheRamdisk(t *testing.T) {
	top := t.TempDir()
	write := func(path, content string, mode os.FileMode) {
		path = filepath.Join(top, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), mode))
	}
	script := func(name string) string {
		text, err := os.ReadFile("../../../overlays/ramdisk/usr/lib/firstlight/" + name)
		require.NoError(t, err)
		return strings.NewReplacer("/proc/cmdline", top+"/cmdline", "/sys/class/net", top+"/net",
			"/etc/resolv.conf", top+"/resolv.conf", "/usr/lib/firstlight/lease", top+"/lease").Replace(string(text))
	}
	write("lease", script("lease"), 0o755)
	write("cmdline", "console=ttyS0 ipa-api-url=https://172.22.0.1:6385/b/x BOOTIF=01-52-54-00-00-00-01 firstlight.address=172.22.0.201/24 "+
		"firstlight.gateway=172.22.0.254 firstlight.dns=10.0.0.2,10.0.0.3\n", 0o644)
	write("net/eth0/address", "52:54:00:00:00:02\n", 0o644)
	write("bin/ip", "#!/bin/sh\necho \"$*\"\n", 0o755)
	run := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", script("static"))
		cmd.Env = append(os.Environ(), "PATH="+top+"/bin:"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}

	out, err := run()
	assert.Error(t, err, "its NIC is not there yet")
	assert.Empty(t, out)
	write("net/eth1/address", "52:54:00:00:00:01\n", 0o644)
	out, err = run()
	require.NoError(t, err, out)
	assert.Equal(t, `link set eth1 up
addr replace 172.22.0.201/24 dev eth1 metric 100
route replace default via 172.22.0.254 dev eth1 metric 100
`, out)

	// By IPv6 the boot server names it, in a script of Ironic's.
	write("cmdline", "BOOTIF=52:54:00:00:00:01 firstlight.address=fd00:22::a/64 initrd=ramdisk\n", 0o644)
	out, err = run()
	require.NoError(t, err, out)
	assert.Equal(t, "link set eth1 up\naddr replace fd00:22::a/64 dev eth1 metric 100\n", out)

	resolvers, err := os.ReadFile(filepath.Join(top, "resolv.conf"))
	require.NoError(t, err)
	assert.Equal(t, "nameserver 10.0.0.2\nnameserver 10.0.0.3\n", string(resolvers))
}
