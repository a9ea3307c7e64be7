package agentgate

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/hostkey"
)

const packages = "../../../overlays/ramdisk/usr/lib/python3/dist-packages"

// TestTheRamdiskAsksBeforeItWrites: its own hardware manager, run by itself, and the gate.
func TestTheRamdiskAsksBeforeItWrites(t *testing.T) {
	for _, name := range []string{"python3", "wipefs"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip("needs the tools that the ramdisk has: ", err)
		}
	}
	if exec.CommandContext(t.Context(), "python3", "-c", "import cryptography").Run() != nil {
		t.Skip("needs the modules that the ramdisk has: python3-cryptography")
	}
	b := newFixture(t)
	b.hosts[macOf(1)] = &Host{Name: "node9", UUID: uuid} // where the program runs is 127.0.0.1
	top := t.TempDir()
	disk, ca := filepath.Join(top, "disk"), filepath.Join(top, "ca.pem")
	require.NoError(t, os.WriteFile(disk, nil, 0o644))
	require.NoError(t, os.Truncate(disk, 16<<20))
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.cert}), 0o644))
	base := b.boot(t, 1)
	runWith := func(patience, drive string) string {
		cmd := exec.CommandContext(t.Context(), "python3", "testdata/agent/write.py", patience)
		cmd.Env = append(os.Environ(), "PYTHONPATH=testdata/agent:"+packages, "PYTHONDONTWRITEBYTECODE=1", "DISK="+disk, "CAFILE="+ca, "DRIVE="+drive, "API_URL=https://"+b.addr+base)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	run := func(patience string) string { return runWith(patience, "") }

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
	assert.Contains(t, run("0"), "failed: nothing was written, for ")
	until := len(asked) + 3
	b.MayWrite = func(_ context.Context, _ string, q WriteRequest) (string, error) {
		if asked = append(asked, q); len(asked) < until {
			return "", fault
		}
		return refusal, nil
	}
	assert.Equal(t, "written by the next manager", run("600"), "it asks again while there is no answer")
	assert.Len(t, asked, until)

	refusal, fault = "", nil
	drive := "ISO 9660: " + hostkey.Quote("ssh_keys: {ed25519_private: "+hostkey.Place()+"}\n") + "the end"
	said, written, _ := strings.Cut(runWith("0", pack(t, drive)), "\n")
	assert.Equal(t, "written by the next manager", said)
	asFilled := unpack(t, written)
	assert.Len(t, asFilled, len(drive), "files of the drive have moved")
	var user struct {
		Keys map[string]string `json:"ssh_keys"`
	}
	document := strings.TrimSuffix(strings.TrimPrefix(asFilled, "ISO 9660: "), "the end")
	require.NoError(t, yaml.Unmarshal([]byte(document), &user))
	signer, err := ssh.ParsePrivateKey([]byte(user.Keys["ed25519_private"]))
	require.NoError(t, err, document)
	assert.Equal(t, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), asked[len(asked)-1].HostKey)

	ignition := `ISO 9660: {"source":"data:;base64,` + hostkey.Base64Place() + `"} the end`
	_, written, _ = strings.Cut(runWith("0", pack(t, ignition)), "\n")
	asEncoded := unpack(t, written)
	assert.Len(t, asEncoded, len(ignition), "files of the drive have moved")
	_, encoded, _ := strings.Cut(strings.TrimSuffix(asEncoded, `"} the end`), ",")
	private, err := base64.StdEncoding.DecodeString(encoded)
	require.NoError(t, err, asEncoded)
	signer, err = ssh.ParsePrivateKey(private)
	require.NoError(t, err)
	assert.Equal(t, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))), asked[len(asked)-1].HostKey)

	_, again, _ := strings.Cut(runWith("0", pack(t, drive)), "\n")
	assert.NotEqual(t, asFilled, unpack(t, again), "two installations have one key")
	assert.Equal(t, "written by the next manager\n"+pack(t, "no place"), runWith("0", pack(t, "no place")))
	assert.Empty(t, asked[len(asked)-1].HostKey)

	delete(b.hosts, macOf(1))
	assert.Equal(t, "failed: its agent called, but its host is gone", run("0"))
	assert.Empty(t, b.requests(), "it is not Ironic's business")
}

// TestAnUnknownMachineAsksForNoDisk, and neither does one without a token.
func TestAnUnknownMachineAsksForNoDisk(t *testing.T) {
	b := newFixture(t)
	b.MayWrite = func(context.Context, string, WriteRequest) (string, error) { panic("asked") }
	question := `{"disk": {"name": "/dev/sda"}, "holds": {"kinds": []}}`
	code, _ := b.ask(t, 40, "POST", b.boot(t, 40)+"/disk", strings.NewReader(question))
	assert.Equal(t, 404, code)
	code, _ = b.ask(t, 11, "POST", "/disk", strings.NewReader(question))
	assert.Equal(t, 403, code)
	code, _ = b.ask(t, 11, "POST", b.boot(t, 11)+"/disk", strings.NewReader(`{"holds": {"kinds": []}}`))
	assert.Equal(t, 400, code)
}

// TestWhatIsNoHostKeyIsRefused before anything is written down.
func TestWhatIsNoHostKeyIsRefused(t *testing.T) {
	b := newFixture(t)
	b.MayWrite = func(context.Context, string, WriteRequest) (string, error) { panic("asked") }
	for _, key := range []string{"x", "ssh-rsa AAAA", "ssh-ed25519 AAAA\nssh-ed25519 BBBB"} {
		text, err := json.Marshal(map[string]any{"disk": map[string]string{"name": "/dev/sda"}, "hostKey": key})
		require.NoError(t, err)
		code, said := b.ask(t, 11, "POST", b.boot(t, 11)+"/disk", strings.NewReader(string(text)))
		assert.Equal(t, 400, code)
		assert.Contains(t, said, "SSH host key")
	}
}

// pack makes a config drive as Ironic sends it; unpack reads it.
func pack(t *testing.T, drive string) string {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(drive))
	require.NoError(t, errors.Join(err, w.Close()))
	return base64.StdEncoding.EncodeToString(packed.Bytes())
}

func unpack(t *testing.T, sent string) string {
	t.Helper()
	r, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(sent)))
	require.NoError(t, err)
	drive, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(drive)
}
