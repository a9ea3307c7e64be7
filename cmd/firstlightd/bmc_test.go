package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
)

// shownCertificate is one that is always the same, of an issuer of that name.
func shownCertificate(issuer string) status.BMCCertificate {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "idrac-ABC1234", Organization: []string{"Dell Inc."}},
		NotBefore:    time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:     time.Date(2036, 3, 1, 0, 0, 0, 0, time.UTC),
	}
	by := &x509.Certificate{Subject: pkix.Name{CommonName: issuer}}
	der, err := x509.CreateCertificate(nil, template, by, key.Public(), key)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(der)
	return status.BMCCertificate{
		Endpoint:    "10.30.0.101:443",
		Pinned:      strings.Repeat("12", 32),
		SHA256:      hex.EncodeToString(sum[:]),
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Seen:        time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC),
	}
}

// typed is a terminal at which somebody types a line.
func typed(t *testing.T, line string) io.Reader {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminal: ", err)
	}
	t.Cleanup(func() { person.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { terminal.Close() })
	_, err = io.WriteString(person, line)
	require.NoError(t, err)
	return terminal
}

// TestBMCTrustCommand: with a SHA-256 that certificate is accepted and no other; without, what it is is shown, and
// nothing is accepted that nobody typed a word for.
func TestBMCTrustCommand(t *testing.T) {
	socket := daemonSays(t, status.Document{Version: "0.1.0", State: status.StateReady})
	run := func(in io.Reader, args ...string) (string, error) {
		cmd := newBMCCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetIn(in)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(append([]string{"trust", "--socket", socket}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	sum := shownCertificate("idrac-ABC1234").SHA256
	accepted := "the BMC of node-1 is trusted with sha256 " + sum + ", before " + strings.Repeat("12", 32) + "\n"
	nobody := strings.NewReader(trustWord + "\n")

	out, err := run(nobody, "node-1", sum)
	require.NoError(t, err)
	assert.Equal(t, accepted, out)

	out, err = run(typed(t, trustWord+"\n"), "node-1")
	require.NoError(t, err)
	plan, found := strings.CutSuffix(out, accepted)
	require.True(t, found, out)
	goldentest.CheckBlock(t, "../../docs/metal.md", "trust", "$ firstlightd bmc trust node-1\n"+plan+trustWord+"\n"+accepted)

	for _, line := range []string{"y\n", "\n", "\x04"} {
		out, err = run(typed(t, line), "node-1")
		assert.EqualError(t, err, "nothing was accepted")
		assert.Equal(t, plan, out)
	}

	out, err = run(nobody, "node-1")
	assert.EqualError(t, err, "nothing was accepted: this is no terminal, where a person could be asked; "+
		"if it is that BMC, run: firstlightd bmc trust node-1 "+sum)
	assert.Contains(t, out, sum)

	out, err = run(nobody, "node-3")
	require.Error(t, err)
	assert.NotContains(t, out, "\x1b", "whoever answers in its place writes to the terminal")
	assert.Contains(t, out, `"CN=\x1b[2Jidrac"`)
	_, err = run(typed(t, trustWord+"\n"), "node-2")
	assert.ErrorContains(t, err, "is damaged; if it is that BMC, and its own web page or console shows this sha256, run: "+
		"firstlightd bmc trust node-2 "+sum)
	_, err = run(nobody, "node-1", "wrong")
	assert.EqualError(t, err, "the BMC 10.30.0.101:443 shows another certificate than that")
	_, err = run(nobody, "node-9")
	assert.EqualError(t, err, "no node is called node-9")
	_, err = run(nobody)
	assert.EqualError(t, err, "accepts between 1 and 2 arg(s), received 0")
}
