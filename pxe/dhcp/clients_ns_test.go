package dhcp

import (
	"os"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// udhcpcScript prints what the client got.
const udhcpcScript = "#!/bin/sh\n[ $1 = bound ] && ip addr add $ip/$mask dev $interface\n[ $1 = deconfig ] && ip addr flush dev $interface\n[ $1 = bound ] && [ -n \"$END_WHEN_BOUND\" ] && kill -TERM $PPID\necho \"$1 ip=$ip mask=$mask router=$router dns=$dns ntp=$ntpsrv domain=$domain mtu=$mtu lease=$lease host=$hostname routes=$staticroutes\"\n"

func script(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/script"
	require.NoError(t, os.WriteFile(path, []byte(udhcpcScript), 0o755))
	return path
}

func udhcpc(t *testing.T, l lab, args ...string) (string, error) {
	t.Helper()
	return in(t, l.client, "busybox", append([]string{"udhcpc", "-i", "cli0", "-f", "-n", "-q", "-t", "8", "-T", "2", "-s", script(t),
		"-O", "mtu", "-O", "staticroutes", "-O", "ntpsrv", "-O", "hostname"}, args...)...)
}

func TestUdhcpcGetsAddressAndOptions(t *testing.T) {
	l := newLab(t)
	c := l.config(nil)
	p := start(t, l.server, c)
	p.waitFor("status serving")
	run(t, "ip", "-n", l.client, "link", "set", "cli0", "address", "52:54:00:00:00:01")
	out, err := udhcpc(t, l)
	require.NoError(t, err, "%s\n%s", out, p.output())
	assert.Contains(t, out, "bound ip=172.22.0.11 mask=16 router= dns=172.22.0.1 ntp=172.22.0.1 domain=rack.example mtu=1500 lease=3600 host=node-1")
	assert.Contains(t, out, "10.9.0.0/16 172.22.0.254")
	t.Setenv("END_WHEN_BOUND", "1") // with -q udhcpc forgets its release
	out, err = in(t, l.client, "busybox", "udhcpc", "-i", "cli0", "-f", "-R", "-s", script(t))
	require.NoError(t, err, out)
	p.waitFor("release  mac=52:54:00:00:00:01 addr=172.22.0.11")
	p.stop()
	all := leasesIn(t, c.LeaseDir)
	require.Len(t, all, 1)
	assert.Equal(t, "free", all[0].State)
}

// TestRestartRemembers: a client renews with a server that was killed and started again,
// and a machine that restarts is confirmed.
func TestRestartRemembers(t *testing.T) {
	l := newLab(t)
	l.withAddress()
	c := l.config(nil)
	p := start(t, l.server, c)
	p.waitFor("status serving")
	request := packet(stranger, dhcpv4.MessageTypeRequest, serverID("172.22.0.1"), want("172.22.1.33"))
	require.Equal(t, dhcpv4.MessageTypeAck, exchangeAll(t, l, relayed(request))[0].MessageType())
	p.kill()
	p = start(t, l.server, c)
	p.waitFor("status serving")
	replies := exchangeAll(t, l,
		relayed(packet(stranger, dhcpv4.MessageTypeRequest, want("172.22.1.33"))),
		relayed(packet(stranger, dhcpv4.MessageTypeRequest, uses("172.22.1.33"))),
		relayed(packet("52:54:00:00:00:98", dhcpv4.MessageTypeRequest, uses("172.22.1.33"))))
	assert.Equal(t, dhcpv4.MessageTypeAck, replies[0].MessageType(), "INIT-REBOOT")
	assert.Equal(t, dhcpv4.MessageTypeAck, replies[1].MessageType(), "rebinding")
	assert.Equal(t, dhcpv4.MessageTypeNak, replies[2].MessageType(), "another machine")
}

// TestProbeFindsForeignServer is what tells networks apart before anything is served.
func TestProbeFindsForeignServer(t *testing.T) {
	l := newLab(t)
	run(t, "ip", "-n", l.client, "addr", "add", "172.22.0.250/16", "dev", "cli0")
	self, err := os.Executable()
	require.NoError(t, err)
	probe := func() string {
		return run(t, "ip", "netns", "exec", l.server, "env", clientEnv+"=probe", self)
	}
	assert.Equal(t, "0 servers\n", probe())
	foreignServer(t, l)
	assert.Contains(t, probe(), "172.22.0.250 at ")
}
