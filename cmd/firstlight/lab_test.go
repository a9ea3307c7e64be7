package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/virtualrack"
)

func TestLabOrder(t *testing.T) {
	want := virtualrack.DefaultOrder()
	want.Image = "/some.img"
	got, err := labOrder(t.TempDir(), want, func(string) bool { return false })
	require.NoError(t, err)
	assert.Equal(t, want, got, "a new rack is as the defaults")
}

func TestLabWithoutARack(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"status"}, {"status", "-o", "json"}, {"why"}, {"why", "node-1"}, {"console", "node-1"}, {"ssh", "node-1"}, {"kubectl", "--dir", dir, "get", "bmh"},
		{"power", "node-1", "on"}, {"throttle", "node-1"}, {"cable", "node-1"}, {"dial", "appliance", "22"}, {"supervise"}} {
		command := append([]string{"lab"}, args...)
		if args[0] != "kubectl" {
			command = append([]string{"lab", "--dir", dir}, args...)
		}
		assert.Equal(t, 1, run(t.Context(), command), "%v", args)
	}
	assert.Equal(t, 0, run(t.Context(), []string{"lab", "--dir", dir, "down", "--remove"}), "there is nothing to end")
	assert.DirExists(t, dir)
	for _, args := range [][]string{{"up", "--nodes", "0"}, {"up", "--timeout", "1m"}, {"up", "--firmware", "efi"}, {"up", "--accel", "hvf"}, {"status", "-o", "xml"}, {"console"}, {"power", "node-1"}, {"throttle"}, {"throttle", "all", "--cpus", "-1"}, {"up", "--cpus", "0.001"}, {"cable", "node-1", "--loss", "101"}} {
		assert.Equal(t, 2, run(t.Context(), append([]string{"lab", "--dir", dir}, args...)), "%v", args)
	}
}

func TestQuoted(t *testing.T) {
	assert.Equal(t, []string{"'get'", `'it'\''s'`, "'-o'", "'{.items[*].name}'"}, quoteArgs([]string{"get", "it's", "-o", "{.items[*].name}"}))
}

func TestSSHCommand(t *testing.T) {
	to := []string{"ssh", "-F", "config", "appliance"}
	for _, c := range []struct {
		command   []string
		terminals bool
		want      []string
	}{
		{nil, true, to},
		{[]string{"top"}, true, []string{"ssh", "-t", "-F", "config", "appliance", "top"}},
		{[]string{"top"}, false, []string{"ssh", "-F", "config", "appliance", "top"}},
	} {
		assert.Equal(t, c.want, sshCommand(to, c.command, c.terminals))
	}
}

func TestLabCompletion(t *testing.T) {
	complete := func(words ...string) string {
		out, _, err := command(t, "", append([]string{cobra.ShellCompNoDescRequestCmd, "lab", "--dir", t.TempDir()}, words...)...)
		require.NoError(t, err)
		return out
	}
	assert.Equal(t, ":4\n", complete("power", ""), "there is no rack")
	assert.Equal(t, "on\noff\nreset\nbutton\npause\nresume\n:4\n", complete("power", "node-1", ""))
	assert.Equal(t, ":4\n", complete("power", "node-1", "on", ""))
}
