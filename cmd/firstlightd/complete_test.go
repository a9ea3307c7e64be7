package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

// complete is what a shell offers behind these words.
func complete(t *testing.T, words ...string) []string {
	t.Helper()
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(append([]string{cobra.ShellCompNoDescRequestCmd}, words...))
	root.SetOut(&out)
	root.SetErr(new(bytes.Buffer))
	require.NoError(t, root.ExecuteContext(t.Context()))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[:len(lines)-1] // without the directive
}

func TestCompletion(t *testing.T) {
	socket := daemonSays(t, status.Document{
		Version:  "0.1.0",
		Nodes:    []status.Node{{Name: "node-1"}, {Name: "node-2"}},
		Clusters: []status.Cluster{{Name: "edge"}},
	})
	assert.Equal(t, []string{"node-1", "node-2", "edge"}, complete(t, "why", "--socket", socket, ""))
	assert.Equal(t, []string{"node-1", "node-2"}, complete(t, "adopt", "--socket", socket, "no"))
	assert.Equal(t, []string{"node-1", "node-2"}, complete(t, "bmc", "trust", "--socket", socket, ""))
	assert.Empty(t, complete(t, "why", "--socket", socket+"-not", ""), "nobody answers")
	assert.Equal(t, []string{"text", "json"}, complete(t, "why", "-o", ""))
	assert.Equal(t, []string{"launch", "appliance"}, complete(t, "status", "--wait="))

	dir := t.TempDir()
	for _, cluster := range []string{"edge", "far"} {
		file := filepath.Join(dir, cluster, "artifacts", "admin.conf")
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, nil, 0o600))
	}
	assert.Equal(t, []string{"edge", "far"}, complete(t, "kubeconfig", "--dir", dir, ""))
}

// TestTheShellOfTheApplianceCompletes: by the file of the appliance's profile, with this program as firstlightd.
func TestTheShellOfTheApplianceCompletes(t *testing.T) {
	const source = ". ../../overlays/appliance/etc/profile.d/firstlight-completion.sh"
	if line, isProgram := os.LookupEnv("FIRSTLIGHTD_ARGUMENTS"); isProgram {
		os.Exit(run(t.Context(), strings.Split(strings.TrimSuffix(line, "\n"), "\n")))
	}

	socket := daemonSays(t, status.Document{
		Version:  "0.1.0",
		Nodes:    []status.Node{{Name: "node-1"}, {Name: "node-2"}},
		Clusters: []status.Cluster{{Name: "edge"}},
	})
	bin := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	program := "#!/bin/bash\nwords=$(printf '%s\\n' \"$@\"; echo .)\n" + // the shell would take the last empty word away
		"FIRSTLIGHTD_ARGUMENTS=${words%.} exec " + self + " -test.run '^TestTheShellOfTheApplianceCompletes$'\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "firstlightd"), []byte(program), 0o755))

	for _, c := range []struct{ line, now, want string }{
		{"firstlightd why --socket " + socket + " ", "", "node-1 node-2 edge"},
		{"firstlightd why --socket " + socket + " no", "no", "node-1 node-2"},
		{"firstlightd why --socket " + socket + " x", "x", ""},
		{"firstlightd sit", "sit", "site"},
		{"firstlightd site ", "", "replace show"},
		{"firstlightd status --wait=", "=", "launch appliance"},
		{"firstlightd status --wait=l", "l", "launch"},
	} {
		ask := exec.CommandContext(t.Context(), "bash", "-c", source+` && complete -p firstlightd kubectl >&2 &&
COMP_LINE=$1 COMP_POINT=${#1} && _firstlight_complete firstlightd "$2"; echo "${COMPREPLY[*]}"`, "bash", c.line, c.now)
		ask.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := ask.Output()
		require.NoError(t, err)
		assert.Equal(t, c.want, strings.TrimSpace(string(out)), c.line)
	}
	assert.NoError(t, exec.CommandContext(t.Context(), "sh", "-c", source).Run(), "another shell passes over it")
}
