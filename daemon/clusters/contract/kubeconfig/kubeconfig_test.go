package kubeconfig

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const good = `apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}, {name: b, context: {cluster: b, user: b}}]
clusters:
- {name: a, cluster: {server: "https://172.22.0.11:6443", certificate-authority-data: Y2E=}}
- {name: b, cluster: {server: "https://172.22.0.12:6443"}}
users:
- {name: a, user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}}
- {name: b, user: {token: word}}
`

func TestOnlyWhatIsInAKubeconfigCounts(t *testing.T) {
	c, err := Parse([]byte(good))
	require.NoError(t, err)
	assert.Equal(t, "https://172.22.0.11:6443", c.Host)
	assert.Equal(t, "key", string(c.KeyData))
	require.NoError(t, Check([]byte(good)))
	assert.NoError(t, Check([]byte("torn")))

	for change, want := range map[string]string{
		"token: word → exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, interactiveMode: Never}": "a program (exec)",
		"token: word → auth-provider: {name: gcp}":                              "a program (auth-provider)",
		"token: word → tokenFile: /etc/shadow":                                  "a file",
		"token: word → client-key: /etc/ssh/ssh_host_ed25519_key":               "a file",
		"client-key-data: a2V5 → client-key: /etc/ssh/ssh_host_ed25519_key":     "a file",
		"certificate-authority-data: Y2E= → certificate-authority: /etc/shadow": "a file (certificate-authority)",
		`certificate-authority-data: Y2E= → proxy-url: "http://127.0.0.1:6188"`: "a proxy",
	} {
		old, replacement, _ := strings.Cut(change, " → ")
		text := strings.Replace(good, old, replacement, 1)
		require.NotEqual(t, good, text, change)
		_, err := Parse([]byte(text))
		assert.ErrorContains(t, err, want, change)
		assert.ErrorContains(t, Check([]byte(text)), want, change)
	}

	for change, want := range map[string]string{
		"current-context: a → current-context: c":   "no current context",
		"cluster: a, user: a → cluster: a, user: c": "no current context",
		"https://172.22.0.11 → http://172.22.0.11":  "https://",
		"https://172.22.0.11:6443 → unix:/run/x":    "https://",
	} {
		old, replacement, _ := strings.Cut(change, " → ")
		_, err := Parse([]byte(strings.Replace(good, old, replacement, 1)))
		assert.ErrorContains(t, err, want, change)
	}
	for _, text := range []string{"", "{", "kind: Config"} {
		_, err := Parse([]byte(text))
		assert.Error(t, err, text)
	}
}
