package installer

import (
	"encoding/base64"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const saidByANode = `os=debian 13
arch=x86_64
machineID=0123456789abcdef0123456789abcdef
time=1795276800
cpus=2
memory=4012345
free=8123456
systemd=yes
unified=yes
resolv=/run/systemd/resolve/resolv.conf
nameservers=10.1.1.53 127.0.0.53 fe80::1%eth0 
apt=yes
`

func TestFacts(t *testing.T) {
	f, err := parseFacts(saidByANode)
	require.NoError(t, err)
	assert.Equal(t, facts{OS: "debian 13", Arch: "x86_64", MachineID: "0123456789abcdef0123456789abcdef", Time: time.Unix(1795276800, 0), CPUs: 2, Memory: 4012345,
		Free: 8123456, Systemd: true, Unified: true, Resolv: "/run/systemd/resolve/resolv.conf", Nameservers: []netip.Addr{netip.MustParseAddr("10.1.1.53")},
		Apt: true}, f)

	mark := base64.StdEncoding.EncodeToString([]byte(`{"cluster":"edge","id":"A","label":"w-1"}`))
	f, err = parseFacts(saidByANode + "kubernetes=yes\nkubernetes=yes\nauthority=\ncloudInit=running\nmarker=" + mark + "\nfuture=thing\n")
	require.NoError(t, err)
	assert.True(t, f.Kubernetes && f.CloudInit)
	assert.Equal(t, &marker{Cluster: "edge", ID: "A", Label: "w-1"}, f.Marker)

	f, err = parseFacts(saidByANode + "kubernetes=yes\npods=10.244.64.0/18\nservices=10.244.0.0/18\nhalfMade=yes\nnodeIP=172.22.0.14\nprograms=1.36.3-0firstlight0.1.0+77198038ab19\nlinked=yes\nsystemAuthority=yes\n")
	require.NoError(t, err)
	assert.Equal(t, edge.Pods, f.PodsWere)
	assert.Equal(t, edge.Services, f.ServicesWere)
	assert.True(t, f.HalfMade && f.Linked && f.SystemAuthority)
	assert.Equal(t, "1.36.3-0firstlight0.1.0+77198038ab19", f.Programs)
	assert.Equal(t, "172.22.0.14", f.NodeIP.String())

	f, err = parseFacts(saidByANode + "marker=\n")
	require.NoError(t, err)
	assert.Nil(t, f.Marker, "a mark whose write was cut off")
	for _, text := range []string{"", "arch=x86_64\n", saidByANode + "memory=lots\n", saidByANode + "marker=!\n", saidByANode + "marker=e30\n", saidByANode + "marker=W10=\n"} {
		_, err := parseFacts(text)
		assert.Error(t, err, "%q", text)
	}
}

// The script is asked of this machine: it must run anywhere and change nothing.
func TestLookRuns(t *testing.T) {
	out, err := exec.Command("sh", "-euc", factsScript).Output()
	require.NoError(t, err)
	text := string(out)
	if !strings.Contains(text, "machineID=") {
		t.Fatal(text)
	}
	f, err := parseFacts(text)
	if err == nil {
		assert.NotZero(t, f.CPUs)
		assert.NotZero(t, f.Memory)
		assert.NotZero(t, f.Free)
		assert.WithinDuration(t, time.Now(), f.Time, time.Hour)
	} else {
		assert.Contains(t, text, "machineID=\n", "this machine has no machine-id, and nothing else is wrong")
	}
}

func TestPodsGoBeforeServicesOnASmallNode(t *testing.T) {
	for weight, f := range map[string][]facts{
		"20": {{Systemd: true, CPUs: 1}, {Systemd: true, CPUs: 2}},
		"":   {{Systemd: true, CPUs: 3}, {Systemd: true, CPUs: 64}, {CPUs: 1}, {Systemd: true}},
	} {
		for _, f := range f {
			assert.Equal(t, weight, systemWeight(f), "%+v", f)
		}
	}
}

func TestFit(t *testing.T) {
	change := func(c func(*facts)) facts { f := usual; c(&f); return f }
	assert.NoError(t, checkFit(usual, true))
	small := change(func(f *facts) { f.Memory = 1 << 20 })
	assert.NoError(t, checkFit(small, false))
	assert.EqualError(t, checkFit(small, true), "it has 1024 MiB of memory; its role needs 1500 MiB")
	assert.True(t, bringup.IsPermanent(checkFit(small, true)))
	err := checkFit(change(func(f *facts) { f.Arch = "aarch64" }), false)
	assert.True(t, bringup.IsPermanent(err))
	assert.ErrorContains(t, err, "aarch64")
	other := checkFit(change(func(f *facts) { f.Apt = false }), false)
	assert.ErrorContains(t, other, "it has no apt")
	assert.True(t, bringup.IsPermanent(other))
	earlier := checkFit(change(func(f *facts) { f.Linked = true }), false)
	assert.ErrorContains(t, earlier, "use a stick of that version")
	assert.True(t, bringup.IsPermanent(earlier))
	full := change(func(f *facts) { f.Free = 100 << 10 })
	assert.EqualError(t, checkFit(full, false), "100 MiB are free in its /var/lib, 2048 MiB are needed; free some")
	assert.False(t, bringup.IsPermanent(checkFit(full, false)), "somebody frees some while the installer waits")
	full.Kubernetes = true
	assert.NoError(t, checkFit(full, false), "a node in service was given up for its disk")
	assert.True(t, bringup.IsWait(checkFit(change(func(f *facts) { f.CloudInit = true }), false)))
}

func TestOwner(t *testing.T) {
	ours := marker{Cluster: "edge", ID: "A", Label: "w-1"}
	with := func(m *marker, kubernetes bool, authority string) facts {
		return facts{Marker: m, Kubernetes: kubernetes, Authority: authority}
	}
	for _, c := range []struct {
		what, says string
		f          facts
	}{
		{"a new machine", "", with(nil, false, "")},
		{"ours, begun with", "", with(&ours, false, "")},
		{"ours", "", with(&ours, true, "ca")},
		{"ours, the cluster's API is not there yet", "", with(&ours, true, "other")},
		{"another's Kubernetes", "that this appliance did not make; if what is on it may go", with(nil, true, "x")},
		{"of another cluster", "it belongs to cluster core; if", with(&marker{"core", "A", "w-1"}, true, "x")},
		{"of this cluster's former life", "it belongs to an earlier cluster edge; if", with(&marker{"edge", "B", "w-1"}, true, "x")},
		{"renamed", "it is w-2 of this cluster, not w-1", with(&marker{"edge", "A", "w-2"}, true, "ca")},
	} {
		authority := "ca"
		if strings.Contains(c.what, "not there yet") {
			authority = ""
		}
		err := checkOwner(c.f, ours, authority)
		if c.says == "" {
			assert.NoError(t, err, c.what)
			continue
		}
		assert.ErrorContains(t, err, c.says, c.what)
		assert.True(t, bringup.IsPermanent(err), c.what)
	}
	assert.ErrorContains(t, checkOwner(with(&ours, true, "other"), ours, "ca"), "of another cluster's authority")
}

func TestAControlPlaneDoesNotMove(t *testing.T) {
	was, now := netip.MustParseAddr("172.22.0.11"), netip.MustParseAddr("172.22.0.21")
	f := facts{Kubernetes: true, NodeIP: was}
	assert.NoError(t, checkAddress(f, was, true))
	assert.NoError(t, checkAddress(f, now, false), "a worker may")
	assert.NoError(t, checkAddress(facts{}, now, true), "a new machine")
	assert.NoError(t, checkAddress(facts{Kubernetes: true, HalfMade: true, NodeIP: was}, now, true), "it will be made again")
	err := checkAddress(f, now, true)
	assert.True(t, bringup.IsPermanent(err))
	assert.ErrorContains(t, err, "made at 172.22.0.11, and it is reached at 172.22.0.21 now; a control plane does not move: give it 172.22.0.11 again")
}

func TestSkew(t *testing.T) {
	now := time.Unix(1795276800, 0)
	assert.Empty(t, clockSkew(now.Add(29*time.Second), now))
	assert.Equal(t, "its clock is 2h0m0s behind the appliance's", clockSkew(now.Add(-2*time.Hour), now))
	assert.Equal(t, "its clock is 31s ahead of the appliance's", clockSkew(now.Add(31*time.Second), now))
}

func FuzzFacts(f *testing.F) {
	f.Add(saidByANode)
	f.Add(saidByANode + "marker=e30=\nkubernetes=\n")
	f.Fuzz(func(t *testing.T, text string) {
		facts, err := parseFacts(text)
		if err != nil {
			return
		}
		assert.NotEmpty(t, facts.MachineID)
		_ = checkFit(facts, true)
		_ = checkOwner(facts, marker{Cluster: "edge", ID: "A", Label: "w-1"}, "ca")
	})
}
