package installer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// fakeShell writes down what it is asked to run, and answers what a test wants.
type fakeShell struct {
	ran    []string // words, one blank between
	answer func(line string) (string, error)
}

func (s *fakeShell) Run(_ context.Context, _ io.Reader, name string, args ...string) (string, error) {
	line := strings.Join(append([]string{name}, args...), " ")
	s.ran = append(s.ran, line)
	if s.answer == nil {
		return "", nil
	}
	return s.answer(line)
}

func (s *fakeShell) RunScript(ctx context.Context, text string, args ...string) (string, error) {
	return s.Run(ctx, nil, "sh", append([]string{"-euc", text, "sh"}, args...)...)
}

func (s *fakeShell) RunSecret(ctx context.Context, name string, args ...string) (string, error) {
	return s.Run(ctx, nil, name, args...)
}

func (s *fakeShell) LocalAddr() netip.Addr { return netip.MustParseAddr("172.22.0.1") }

// running are the lines that have a word in them.
func (s *fakeShell) running(word string) (lines []string) {
	for _, l := range s.ran {
		if strings.Contains(l, word) {
			lines = append(lines, l)
		}
	}
	return lines
}

func TestKubeadmKeepsItsTokenToItself(t *testing.T) {
	s := &fakeShell{}
	n := &node{Node: made("m-1", "172.22.0.11", true, true), cluster: &cluster{Settings: edge, dir: t.TempDir(), identity: &clusterIdentity{}}, shell: s, known: usual}
	n.cluster.nodes = []*node{n}
	require.NoError(t, n.initDo(t.Context(), func(string) {}))
	lines := s.running("kubeadm init")
	require.Len(t, lines, 1)
	assert.Contains(t, lines[0], "--skip-token-print", "what kubeadm prints is in the node's log")
}

func TestLogsAreForRootAndBounded(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log", "w-1.log")
	i := &Installer{config: Config{Dir: dir}}
	say := func(text string) {
		w, err := i.logTo("w-1")
		require.NoError(t, err)
		_, err = io.WriteString(w, text)
		require.NoError(t, err)
		i.Close()
		i.close = nil
	}
	say("first\n")
	require.NoError(t, os.Chmod(path, 0o644)) // as an earlier release left it
	say("second\n")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "first\nsecond\n", string(text), "a run that goes on begins a new log")

	for range 2 {
		require.NoError(t, os.Truncate(path, maxLog+1))
		say("third\n")
	}
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "third\n", string(text))
	all, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, all, 2, "the log and its former life")
}

// clockNode has a right clock and the file of timesyncd; who keeps the clock is one of timeClient's answers.
func clockNode(t *testing.T, client string) (*node, *fakeShell) {
	s := &fakeShell{}
	n := &node{Node: made("w-1", "172.22.0.14", false, true), cluster: &cluster{Settings: edge, dir: t.TempDir()}, shell: s}
	n.cluster.nodes = []*node{n}
	n.cluster.appliance = &appliance{served: []netip.Prefix{netip.MustParsePrefix("172.22.0.1/24")}}
	started := ""
	s.answer = func(line string) (string, error) {
		switch {
		case strings.Contains(line, factsScript):
			return strings.Replace(saidByANode, "time=1795276800", fmt.Sprintf("time=%d", time.Now().Unix()), 1), nil
		case strings.Contains(line, timeClient):
			return client + "\n", nil
		case strings.HasPrefix(line, "sha256sum"):
			v, _, err := n.applianceValues(t.Context())
			require.NoError(t, err)
			u, err := timesyncdUnit(v)
			require.NoError(t, err)
			sum := sha256.Sum256(u.files[0].data)
			return hex.EncodeToString(sum[:]) + "  " + u.files[0].path + "\n", nil
		case strings.Contains(line, "systemctl is-active"):
			return "active\n" + started, nil
		case strings.Contains(line, "systemctl restart"):
			started = line[strings.LastIndex(line, " ")+1:] + "\n"
		}
		return "", nil
	}
	return n, s
}

// The file was written after timesyncd had started: it is started anew, though the clock is right.
func TestATimeServiceFollowsTheAppliance(t *testing.T) {
	n, s := clockNode(t, "timesyncd")
	require.ErrorContains(t, n.clockDone(t.Context()), "systemd-timesyncd.service runs from another configuration")
	require.NoError(t, n.clockDo(t.Context(), func(string) {}))
	assert.Len(t, s.running("systemctl restart"), 1)
	assert.Empty(t, s.running("date -u -s"), "a clock that is right was set")
	require.NoError(t, n.clockDone(t.Context()))

	n, s = clockNode(t, "other")
	require.NoError(t, n.clockDone(t.Context()))
	assert.Empty(t, s.running("systemctl is-active \"$1\""))

	n, _ = clockNode(t, "none")
	err := n.clockDone(t.Context())
	assert.True(t, bringup.IsPermanent(err))
	assert.ErrorContains(t, err, "no program keeps its clock")
}

func TestAnAddressIsKeptBeyondItsLease(t *testing.T) {
	s := &fakeShell{}
	n := &node{Node: made("w-1", "172.22.0.14", false, true), cluster: &cluster{Settings: edge, dir: t.TempDir()}, shell: s}
	require.NoError(t, n.leaseDone(t.Context()), "an address that does not end, or that networkd does not manage")

	s.answer = func(line string) (string, error) {
		if strings.Contains(line, "NETWORK_FILE") {
			return "/run/systemd/network/10-netplan-ens3.network\n", nil
		}
		return "", nil
	}
	require.Error(t, n.leaseDone(t.Context()))
	s.ran = nil
	require.NoError(t, n.leaseDo(t.Context(), func(string) {}))
	assert.Len(t, s.running("cat >\"$1.new\""), 1)
	assert.Len(t, s.running("/etc/systemd/network/10-netplan-ens3.network.d/60-firstlight.conf"), 2, "compared, then written")
	require.Len(t, s.running("systemctl restart"), 1)
	assert.Contains(t, s.running("systemctl restart")[0], "systemd-networkd.service")
	assert.Equal(t, "# The appliance, which gives leases, may be switched off: the node keeps its address.\n[Network]\nKeepConfiguration=dhcp\n",
		string(leaseUnitFor("/run/systemd/network/10-netplan-ens3.network").files[0].data))

	// The script is asked of this machine, for an address that nobody has.
	out, err := exec.Command("sh", "-euc", lease, "sh", "192.0.2.1").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Empty(t, string(out))
}
