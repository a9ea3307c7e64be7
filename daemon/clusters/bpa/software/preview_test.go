package software

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/engine/remote/sshtest"
)

// has is a package as dpkg's status has it; state is the last word of Status.
func has(name, version, state string) string {
	return fmt.Sprintf("Package: %s\nStatus: install ok %s\nVersion: %s\nArchitecture: amd64\nMaintainer: m\nDescription: d\n\n", name, state, version)
}

// TestPreviewIsWhatAptWouldChange asks this machine's apt about a Debian of its own.
func TestPreviewIsWhatAptWouldChange(t *testing.T) {
	suites := map[string]string{
		"firstlight": stanza("linux-image-amd64", "6.12.50", "Depends: linux-image-6.12.50-amd64\n") + stanza("linux-image-6.12.50-amd64", "6.12.50", "") +
			stanza("curl", "8.2", "") + stanza("jq", "1.7", "") + stanza("kubelet", "1.36.4-0a", "") + stanza("older", "1", "") + stanza("half", "2", ""),
		"beta": stanza("tool", "2", ""),
	}
	installed := []string{
		has("linux-image-amd64", "6.12.48", "installed"), has("curl", "8.1", "installed"), has("jq", "1.7", "installed"),
		has("kubelet", "1.36.3-0a", "installed"), has("older", "2", "installed"), has("tool", "1", "installed"), has("local", "1", "installed"),
		has("half", "2", "half-configured"),
	}
	preview := func(packages ...Package) Preview {
		out, said := simulate(t, PreviewScript("beta", packages), suites, installed...)
		return ReadPreview(packages, out, said)
	}
	half := Change{"half", "", "2"}
	assert.Equal(t, Preview{Changes: []Change{
		{"curl", "8.1", "8.2"}, half, {"linux-image-amd64", "6.12.48", "6.12.50"}, {"tool", "1", "2"},
	}}, preview(), "all that are newer, but for Kubernetes' own, what is older, and what no repository has")
	assert.Equal(t, Preview{Changes: []Change{half, {"kubelet", "1.36.3-0a", "1.36.4-0a"}}}, preview(Package{"kubelet", ""}, Package{"jq", ""}, Package{"absent", ""}))
	assert.Equal(t, Preview{Changes: []Change{half, {"older", "2", "1"}}}, preview(Package{"older", "1"}), "a version that is asked for may be older")
	assert.Equal(t, Preview{Error: "version 9 of package jq is unavailable; there are: 1.7"}, preview(Package{"jq", "9"}))

	script := strings.ReplaceAll(Script("beta", Targets(preview().Changes)), "dpkg --force-confold --configure -a", "true")
	_, said := simulate(t, script, suites, installed...)
	for _, name := range []string{"curl", "linux-image-amd64", "linux-image-6.12.50-amd64", "tool"} {
		assert.Contains(t, said, "Inst "+name+" ")
	}
	assert.Contains(t, said, "Conf half ")
	assert.NotContains(t, said, "kubelet")
}

// TestPreviewChangesNothing on a machine that is made of scripts, and what it says is gone once it was installed.
func TestPreviewChangesNothing(t *testing.T) {
	n := sshtest.New(t).SimulateDebian()
	n.Put("has/jq", "1.6\n")
	n.Put("half/htop", "3.4\n")
	ask := func(packages ...Package) Preview {
		cmd := exec.Command("/bin/sh", "-s")
		cmd.Stdin, cmd.Env = strings.NewReader(PreviewScript("default", packages)), n.Environment()
		out, err := cmd.Output()
		require.NoError(t, err)
		return ReadPreview(packages, string(out), "")
	}
	want := Preview{Changes: []Change{{"htop", "", "3.4"}, {"jq", "1.6", "1.7"}}}
	assert.Equal(t, want, ask())
	assert.Equal(t, want, ask())
	assert.Equal(t, "1.6", n.Get("has/jq"))
	assert.Zero(t, n.InstallCount())

	for _, s := range run(n, Targets(want.Changes)...) {
		assert.Empty(t, s.Error, s.Name)
	}
	assert.Equal(t, Preview{}, ask())
}

func TestReadPreviewRefusals(t *testing.T) {
	for out, want := range map[string]string{
		"": "its packages could not be listed: the end",
		"firstlight: index failed\nfirstlight: previewed\n": "the index of packages could not be renewed: the end",
	} {
		assert.Equal(t, Preview{Error: want}, ReadPreview(nil, out, "E: the end\n"))
	}
	got := ReadPreview(nil, "firstlight: changes x;reboot 1 2\nfirstlight: changes jq 1 2;reboot\nfirstlight: changes jq 1 2\nfirstlight: changes jq 1 2\nfirstlight: previewed x\n", "")
	assert.Equal(t, Preview{Changes: []Change{{"jq", "1", "2"}}}, got, "it becomes words of a script")
}
