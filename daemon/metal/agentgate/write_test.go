package agentgate

import (
	"context"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const packages = "../../../overlays/ramdisk/usr/lib/python3/dist-packages"

// TestTheRamdiskAsksBeforeItWrites: its own hardware manager, run by itself, and the gate.
func TestTheRamdiskAsksBeforeItWrites(t *testing.T) {
	for _, name := range []string{"python3", "wipefs"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs the tools that the ramdisk has: ", err)
		}
	}
	b := newBed(t)
	b.hosts[macOf(1)] = &Host{Name: "node9", UUID: uuid} // where the program runs is 127.0.0.1
	top := t.TempDir()
	disk, ca := filepath.Join(top, "disk"), filepath.Join(top, "ca.pem")
	require.NoError(t, os.WriteFile(disk, nil, 0o644))
	require.NoError(t, os.Truncate(disk, 16<<20))
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.cert}), 0o644))
	base := b.boot(t, 1)
	run := func(patience string) string {
		cmd := exec.CommandContext(t.Context(), "python3", "testdata/agent/write.py", patience)
		cmd.Env = append(os.Environ(), "PYTHONPATH=testdata/agent:"+packages, "PYTHONDONTWRITEBYTECODE=1", "DISK="+disk, "CAFILE="+ca, "API_URL=https://"+b.addr+base)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}

	var asked []WriteRequest
	var refusal string
	var fault error
	b.MayWrite = func(_ context.Context, host string, q WriteRequest) (string, error) {
		assert.Equal(t, "node9", host)
		asked = append(asked, q)
		return refusal, fault
	}
	assert.Equal(t, "written by the next manager", run("0"))
	require.Len(t, asked, 1)
	assert.Equal(t, disk, asked[0].Disk.Name)
	assert.Equal(t, "SERIAL", asked[0].Disk.Serial)
	assert.True(t, asked[0].Holds.IsBlank())

	require.NoError(t, os.WriteFile(disk, []byte("somebody's"), 0o644))
	refusal = "disk x is not as inspection saw it"
	assert.Equal(t, "failed: refused by the appliance: disk x is not as inspection saw it", run("0"))
	require.Len(t, asked, 2)
	assert.Equal(t, []string{"data of an unknown kind"}, asked[1].Holds.Kinds)
	assert.NotEmpty(t, asked[1].Holds.Fingerprint)

	refusal, fault = "", errors.New("not known yet")
	assert.Contains(t, run("0.2"), "failed: nothing was written, for ")
	assert.Greater(t, len(asked), 3, "it asks again while there is no answer")

	delete(b.hosts, macOf(1))
	assert.Equal(t, "failed: its agent called, but its host is gone", run("0"))
	assert.Empty(t, b.requests(), "it is not Ironic's business")
}

// TestAnUnknownMachineAsksForNoDisk, and neither does one without a token.
func TestAnUnknownMachineAsksForNoDisk(t *testing.T) {
	b := newBed(t)
	b.MayWrite = func(context.Context, string, WriteRequest) (string, error) { panic("asked") }
	question := `{"disk": {"name": "/dev/sda"}, "holds": {"kinds": []}}`
	code, _ := b.ask(t, 40, "POST", b.boot(t, 40)+"/disk", strings.NewReader(question))
	assert.Equal(t, 404, code)
	code, _ = b.ask(t, 11, "POST", "/disk", strings.NewReader(question))
	assert.Equal(t, 403, code)
	code, _ = b.ask(t, 11, "POST", b.boot(t, 11)+"/disk", strings.NewReader(`{"holds": {"kinds": []}}`))
	assert.Equal(t, 400, code)
}
