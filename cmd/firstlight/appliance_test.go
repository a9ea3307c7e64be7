package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWordsOfTheApplianceAreItsOwn(t *testing.T) {
	for line, want := range map[string]struct{ host, rest string }{
		"":                          {"", ""},
		"-o json":                   {"", "-o json"},
		"--host rack -o json":       {"rack", "-o json"},
		"--host=rack":               {"rack", ""},
		"--host rack -- --help":     {"rack", "--help"},
		"-- --host rack":            {"", "--host rack"},
		"node-1 --host rack":        {"", "node-1 --host rack"},
		"--host=rack --host second": {"rack", "--host second"},
	} {
		host, rest, err := cutHost(strings.Fields(line))
		assert.NoError(t, err, line)
		assert.Equal(t, want.host, host, line)
		assert.Equal(t, want.rest, strings.Join(rest, " "), line)
	}
	_, _, err := cutHost([]string{"--host"})
	assert.ErrorContains(t, err, "needs an argument")
}

// TestALogInSaysWhatIsMissing before it asks anyone.
func TestALogInSaysWhatIsMissing(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("SSH_AUTH_SOCK", "")
	for line, want := range map[string]int{
		"status":                1, // no appliance was logged in to
		"why --host rack":       1,
		"status --host":         2,
		"proxy":                 1,
		"proxy kubectl get":     1,
		"bundle --host rack":    1,
		"credential rack":       1,
		"login ../rack":         2,
		"login root@rack":       2,
		"login 127.0.0.1:1":     1, // there is no key
		"login -i none 127.1:1": 1,
		"logout ../rack":        2,
		"logout a b":            2,
	} {
		assert.Equal(t, want, run(t.Context(), strings.Fields(line)), line)
	}
}
