package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

// daemonSays serves a document and returns the socket. A daemon that failed refuses to reload, with its summary.
func daemonSays(t *testing.T, d status.Document) string {
	socket := filepath.Join(t.TempDir(), "s")
	ready, ended := make(chan struct{}), make(chan error)
	reload := func() error {
		if d.State == status.StateFailed {
			return errors.New(d.Summary)
		}
		return nil
	}
	adopt := func(nodes []string) ([]string, error) {
		if len(nodes) == 0 {
			return []string{"node-1", "node-2"}, nil
		}
		return nodes[:1], errors.New("node-9 is not adopted: it is not in site.yaml")
	}
	unknown := func() []status.UnknownMachine {
		return []status.UnknownMachine{{MAC: "52:54:00:0a:0b:0c", Model: "R640", CPUs: 8, BMC: "10.0.0.5"}, {MAC: "52:54:00:0a:0b:0d"}}
	}
	trust := func(_, fingerprint string) (string, string, error) {
		c := shownCertificate("idrac-ABC1234")
		if fingerprint != c.SHA256 {
			return "", "", errors.New("the BMC 10.30.0.101:443 shows another certificate than that")
		}
		return c.Pinned, fingerprint, nil
	}
	shown := func(node string) (status.BMCCertificate, error) {
		c := shownCertificate("idrac-ABC1234")
		switch node {
		case "node-3":
			return shownCertificate("\x1b[2Jidrac"), nil // it would clear the screen
		case "node-2":
			c.Certificate, c.Pinned = "", ""
		case "node-9":
			return c, errors.New("no node is called node-9")
		}
		return c, nil
	}
	s := &api.Server{Socket: socket, Document: func() status.Document { return d }, Why: func() []status.Node { return d.Nodes }, Reload: reload, Adopt: adopt, TrustBMC: trust, BMCCertificate: shown, Unknown: unknown, Ready: func() { close(ready) }, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	<-ready
	return socket
}

func TestStatusCommand(t *testing.T) {
	ready := status.Document{Version: "0.1.0", Name: "firstlight-ab12", State: status.StateReady, Launch: status.Launch{State: status.LaunchNothing}}
	launched, unlaunched := ready, ready
	launched.Launch.State = status.LaunchSucceeded
	unlaunched.Launch = status.Launch{State: status.LaunchFailed, Text: "not launched, 1 of 2 nodes proven: node-2 is not switched on"}
	failed := status.Document{Version: "0.1.0", State: status.StateFailed, Summary: "site-read: site.yaml:2: unknown key"}
	for _, c := range []struct {
		name string
		d    status.Document
		args []string
		code int
	}{
		{"text", ready, nil, 0},
		{"json", ready, []string{"-o", "json"}, 0},
		{"wait for what is ready", ready, []string{"--wait"}, 0},
		{"wait for a launch", launched, []string{"--wait"}, 0},
		{"wait for a launch that failed", unlaunched, []string{"--wait"}, 1},
		{"wait for the appliance alone", unlaunched, []string{"--wait=appliance"}, 0},
		{"wait for the appliance, with a blank between", unlaunched, []string{"--wait", "appliance"}, 0},
		{"wait for a launch by name", unlaunched, []string{"--wait", "launch"}, 1},
		{"wait for nonsense, with a blank between", ready, []string{"--wait", "nonsense"}, 2},
		{"wait for two things", ready, []string{"--wait=appliance", "launch"}, 2},
		{"a word and no --wait", ready, []string{"launch"}, 2},
		{"text by name", ready, []string{"-o", "text"}, 0},
		{"wait for nonsense", ready, []string{"--wait=nonsense"}, 2},
		{"wait for what stopped", failed, []string{"--wait"}, 1},
		{"only asking is no failure", failed, nil, 0},
		{"unknown format", ready, []string{"-o", "xml"}, 2},
		{"unknown flag", ready, []string{"--nonsense"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"status", "--socket", daemonSays(t, c.d)}, c.args...)
			assert.Equal(t, c.code, run(t.Context(), args))
		})
	}
}

func TestStatusJSONIsTheDocument(t *testing.T) {
	want := status.Document{Version: "0.1.0", Name: "firstlight-ab12", State: status.StateReady, Stages: []status.Stage{{Name: "links-up"}}}
	cmd := newStatusCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"-o", "json", "--socket", daemonSays(t, want)})
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	var got status.Document
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	assert.Equal(t, want, got)
}

func TestReloadSaysWhatIsWrongWithTheSite(t *testing.T) {
	const said = "site.yaml:2: unknown key\nsite.yaml:3: unknown key"
	wrong := daemonSays(t, status.Document{Version: "0.1.0", State: status.StateFailed, Summary: said})
	cmd := newReloadCommand()
	cmd.SetArgs([]string{"--socket", wrong})
	assert.EqualError(t, cmd.ExecuteContext(t.Context()), said)
	assert.Equal(t, 1, run(t.Context(), []string{"reload", "--socket", wrong}))
	good := daemonSays(t, status.Document{Version: "0.1.0", State: status.StateReady})
	assert.Equal(t, 0, run(t.Context(), []string{"reload", "--socket", good}))
}

func TestAdoptCommand(t *testing.T) {
	socket := daemonSays(t, status.Document{Version: "0.1.0", State: status.StateReady})
	for _, c := range []struct {
		args     []string
		out, err string
	}{
		{[]string{"--all"}, "node-1 is adopted\nnode-2 is adopted\n", ""},
		{[]string{"node-1", "node-9"}, "", "node-1 is adopted\nnode-9 is not adopted: it is not in site.yaml"},
		{nil, "", "name the nodes, or give --all"},
		{[]string{"--all", "node-1"}, "", "name the nodes, or give --all"},
	} {
		cmd := newAdoptCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(append([]string{"--socket", socket}, c.args...))
		err := cmd.ExecuteContext(t.Context())
		if c.err != "" {
			assert.EqualError(t, err, c.err)
		} else {
			assert.NoError(t, err)
			assert.Equal(t, c.out, out.String())
		}
	}
}

func TestUnknownCommand(t *testing.T) {
	socket := daemonSays(t, status.Document{Version: "0.1.0", State: status.StateReady})
	show := func(args ...string) (string, error) {
		cmd := newUnknownCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(append([]string{"--socket", socket}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	all, err := show()
	require.NoError(t, err)
	for _, want := range []string{"R640", "- name: node-0a0b0c", `{address: "ipmi://10.0.0.5"`, "kind: BareMetalHost", "- name: node-0a0b0d"} {
		assert.Contains(t, all, want)
	}
	one, err := show("52-54-00-0A-0B-0D", "-o", "json")
	require.NoError(t, err)
	assert.Contains(t, one, "52:54:00:0a:0b:0d")
	assert.NotContains(t, one, "R640")
	_, err = show("52:54:00:00:00:01")
	assert.EqualError(t, err, `no unknown machine with the MAC or the BMC "52:54:00:00:00:01" is known`)
}

func TestNoDaemonIsOneLine(t *testing.T) {
	for _, command := range []string{"status", "reload", "adopt --all", "erase node-1", "bmc trust node-1", "unknown"} {
		assert.Equal(t, 1, run(t.Context(), append(strings.Fields(command), "--socket", filepath.Join(t.TempDir(), "none"))))
	}
}
