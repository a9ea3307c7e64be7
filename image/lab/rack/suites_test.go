package rack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ipmitool, through the relay, to the simulator: a session begins without the question that
// nobody answers.
func TestIpmitoolIsToldTheCipherSuites(t *testing.T) {
	for _, name := range []string{"ipmitool", "ipmi_sim"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs ipmitool and ipmi_sim: ", err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to change the network of a thread")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("chassis"), []byte("#!/bin/sh\necho power:1\n"), 0o755))
	require.NoError(t, os.WriteFile(at("sim.emu"), []byte(controller), 0o644))
	require.NoError(t, os.WriteFile(at("lan.conf"), fmt.Appendf(nil, simulated, "test", "127.9.4.1", 6230, at("chassis"), User, Password), 0o644))
	simulator := exec.CommandContext(ctx, "ipmi_sim", "-n", "-c", at("lan.conf"), "-f", at("sim.emu"), "-s", at("state"))
	require.NoError(t, simulator.Start())
	defer func() { simulator.Process.Kill(); simulator.Wait() }()

	r, err := newRelay(os.Getpid(), "127.9.4.2:6230", "127.9.4.1:6230")
	require.NoError(t, err)
	defer r.close()
	go r.run()
	for {
		said, err := exec.CommandContext(ctx, "ipmitool", "-vvv", "-I", "lanplus", "-H", "127.9.4.2", "-p", "6230", "-U", User, "-P", Password, "power", "status").CombinedOutput()
		if err == nil {
			assert.Contains(t, string(said), "Chassis Power is on")
			assert.NotContains(t, string(said), "Unable to Get Channel Cipher Suites")
			return
		}
		require.NoError(t, ctx.Err(), "%s", said) // the simulator may not listen yet
	}
}

func TestSuitesAnswersNothingElse(t *testing.T) {
	for name, packet := range map[string][]byte{
		"empty":       {},
		"short":       {6, 0, 0xff, 7, 6, 0},
		"ping":        {6, 0, 0xff, 6, 0, 0, 0x11, 0xbe, 0x80, 0, 0, 0},
		"other":       append([]byte{6, 0, 0xff, 7, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0}, 0x20, 0x18, 0xc8, 0x81, 0, 0x38, 0x8e, 4, 0, 0),
		"old session": append([]byte{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0}, 0x20, 0x18, 0xc8, 0x81, 0, 0x54, 0x0e, 0, 0x80, 0),
	} {
		assert.Nil(t, suites(packet), name)
	}
}
