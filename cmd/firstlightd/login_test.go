package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/console"
	"firstlight.dev/firstlight/daemon/appliance/kube"
)

func TestLoginSaysWhereACodeIsUsed(t *testing.T) {
	var out strings.Builder
	writeLogin(&out, status.Login{
		URLs:        []string{"https://10.10.110.20/", "https://10.30.0.2/"},
		Code:        "k3vd-7pqa-m2xe-wz4u",
		Expires:     time.Date(2026, 11, 26, 14, 32, 5, 0, time.UTC),
		Fingerprint: "7A:10",
		Role:        "viewer",
	})
	defer goldentest.CheckBlock(t, "../../docs/page.md", "login", out.String())
	assert.Equal(t, `Open https://10.10.110.20/login?code=k3vd-7pqa-m2xe-wz4u
or open https://10.10.110.20/ and type the code k3vd-7pqa-m2xe-wz4u
Open https://10.30.0.2/login?code=k3vd-7pqa-m2xe-wz4u
or open https://10.30.0.2/ and type the code k3vd-7pqa-m2xe-wz4u
It can be used once, until 14:32:05 UTC. Whoever uses it sees the page and can change nothing there.
Your browser will not know the certificate. Compare its SHA-256 fingerprint before you continue:
7A:10
`, out.String())
}

func TestLoginSaysWhoUsesACode(t *testing.T) {
	var out strings.Builder
	writeLogin(&out, status.Login{Role: "operator", User: "ann@laptop"})
	assert.Contains(t, out.String(), "Whoever uses it is operator there, and ann@laptop in the audit log.")

	for connection, want := range map[string]string{
		"":                                   "root@console",
		"10.10.110.66 50022 10.10.110.20 22": "root@10.10.110.66",
		"2001:db8::7 50022 2001:db8::1 22":   "root@2001-db8--7",
		"fe80::1%eth0 50022 fe80::2 22":      "root@fe80--1-eth0",
	} {
		assert.Equal(t, want, defaultUser(connection))
		assert.NoError(t, kube.CheckPersonName(want))
	}
}

// TestLoginCanBeScanned: the code is that of the link, in colours that do not depend on the terminal's.
func TestLoginCanBeScanned(t *testing.T) {
	var out strings.Builder
	writeQR(&out, status.Login{URLs: []string{"https://10.10.110.20/"}, Code: "k3vd-7pqa-m2xe-wz4u"})
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	want := console.RenderQR("https://10.10.110.20/login?code=k3vd-7pqa-m2xe-wz4u")
	require.Len(t, lines, len(want))
	for i, line := range lines {
		assert.Equal(t, "\x1b[37;40m"+want[i]+"\x1b[0m", line)
	}

	out.Reset()
	writeQR(&out, status.Login{})
	assert.Empty(t, out.String(), "there is nothing to scan")
}
