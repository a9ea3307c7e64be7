package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"k8s.io/client-go/rest"
)

// unpacked are the files of a bundle by name.
func unpacked(t *testing.T, archive []byte) map[string]string {
	z, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	all := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		assert.Zero(t, h.Mode&0o077, "%s can be read by others", h.Name)
		assert.True(t, filepath.IsLocal(h.Name), h.Name)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		_, name, _ := strings.Cut(h.Name, "/")
		all[name] = string(text)
	}
}

func write(t *testing.T, root, path, text string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
}

// minted are an appliance's secrets, written to where the daemon keeps them.
func minted(t *testing.T, root string) []string {
	var all []string
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	_, host, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(host, "node-1")
	require.NoError(t, err)
	hostKey := string(pem.EncodeToMemory(block))
	const cluster, clusterToken = "the key of a cluster's administrator, as long as keys are", "ClusterTokenOfAnAdministrator"
	const ironic, hash = "TTs8Xq-0Yz_ironic-password-of-43-characters", "$2a$04$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234"
	const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2lnbmF0dXJl"
	write(t, root, "var/lib/firstlight/ca/ca.key", ca)
	write(t, root, "var/lib/firstlight/ca/ca.crt", "-----BEGIN CERTIFICATE-----\npublic\n-----END CERTIFICATE-----\n")
	write(t, root, "var/lib/firstlight/secret/ironic.credentials", ironic+"\nfirstlight:"+hash+"\n")
	write(t, root, "var/lib/firstlight/ssh/hosts/node-1", hostKey)
	write(t, root, "etc/kubernetes/pki/sa.key", ca)
	write(t, root, "etc/kubernetes/admin.conf", "users:\n- user:\n    client-key-data: "+base64.StdEncoding.EncodeToString([]byte(ca))+"\n")
	write(t, root, "var/lib/kubelet/pods/uid/volumes/kubernetes.io~projected/api/..2026/token", token)
	write(t, root, "var/lib/kubelet/pods/uid/volumes/kubernetes.io~secret/operator-ironic-auth/..2026/password", ironic)
	write(t, root, "var/lib/kubelet/pods/uid/volumes/kubernetes.io~secret/operator-ironic-auth/..2026/username", "firstlight")
	write(t, root, "run/firstlight/site/site.yaml", `name: rack-7
nodes:
  - name: node-1
    macs: ["52:54:00:00:00:01"]
    bmc: {address: "ipmi://10.0.0.5", username: admin, password: "bmc pass \"7\""}
    os: {password: "$6$rounds=100000$examplesalt$Ev4WYNcCTTMGX0mgrW4AWLDHnQxMOhKk"}
`)
	write(t, root, "opt/kud/multi-cluster/edge/artifacts/admin.conf", "users:\n- user:\n    client-key-data: "+base64.StdEncoding.EncodeToString([]byte(cluster))+"\n    token: "+clusterToken+"\n")
	all = append(all, base64.StdEncoding.EncodeToString([]byte(cluster)), clusterToken)
	for _, text := range []string{ca, hostKey} {
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "-----") && len(line) >= 16 { // the last one may be a few letters
				all = append(all, strings.TrimSpace(line))
			}
		}
	}
	return append(all, ironic, hash, token, `bmc pass "7"`, "$6$rounds=100000$examplesalt$Ev4WYNcCTTMGX0mgrW4AWLDHnQxMOhKk")
}

// spilled is a log into which somebody printed all of it, in every form.
func spilled(secrets []string) string {
	var b strings.Builder
	for i, s := range secrets {
		j, _ := json.Marshal(s)
		fmt.Fprintf(&b, "%d plain=%s base64=%s json=%s query=%s quoted='%s' list:[%s]\n", i, s, base64.StdEncoding.EncodeToString([]byte(s)), j, url.QueryEscape(s), s, s)
	}
	return b.String()
}

func noSecret(t *testing.T, files map[string]string, secrets []string) {
	t.Helper()
	for name, text := range files {
		for _, s := range secrets {
			j, _ := json.Marshal(s)
			for _, form := range []string{s, base64.StdEncoding.EncodeToString([]byte(s)), strings.Trim(string(j), `"`), url.QueryEscape(s)} {
				if strings.Contains(text, form) {
					t.Errorf("%s holds the secret %q as %q", name, s, form)
				}
			}
		}
		assert.NotContains(t, text, "PRIVATE KEY-----\n", name)
	}
}

func TestNoSecretIsInTheBundle(t *testing.T) {
	root := t.TempDir()
	secrets := minted(t, root)
	log := spilled(secrets)
	write(t, root, "var/log/pods/metal3_ironic-x_uid/ironic/0.log", log)
	write(t, root, "var/lib/firstlight/journal.json", `{"runs": [], "said": "`+strings.ReplaceAll(log, "\n", " ")+`"}`)
	write(t, root, "var/lib/firstlight/audit/audit.log", log)
	write(t, root, "var/lib/firstlight/artifacts/audit/uploads.log", log)
	const cluster = "opt/kud/multi-cluster/edge/"
	write(t, root, cluster+"log/node-1.log", log)
	write(t, root, cluster+"hosts.ini", "[all]\nvm  ansible_ssh_host=10.0.0.1 ansible_ssh_pass=geheim ansible_password=geheim\n")
	for _, name := range []string{"progress.json", "cluster.json", "installed.json", "artifacts/verification.json"} {
		write(t, root, cluster+name, "{}")
	}
	write(t, root, cluster+"artifacts/known_hosts", "10.0.0.1 ssh-ed25519 AAAA")
	var ramdisk bytes.Buffer
	z := gzip.NewWriter(&ramdisk)
	w := tar.NewWriter(z)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "../../var/log/agent.log", Mode: 0o644, Size: int64(len(log)), Typeflag: tar.TypeReg}))
	_, err := w.Write([]byte(log))
	require.NoError(t, errors.Join(err, w.Close(), z.Close()))
	write(t, root, "var/lib/ironic/log/deploy/u_metal3~node-1_2026.tar.gz", ramdisk.String())
	var rotated bytes.Buffer
	z = gzip.NewWriter(&rotated)
	_, err = z.Write([]byte(log))
	require.NoError(t, errors.Join(err, z.Close()))
	write(t, root, "var/log/pods/x/0.log.2026.gz", rotated.String())

	var out bytes.Buffer
	c := &Collector{
		Root: root, Now: func() time.Time { return time.Unix(1e9, 0) },
		Sources: []Source{
			{"status.json", func(context.Context) ([]byte, error) { return []byte(log), nil }},
			{"nodes/node-1.log", func(context.Context) ([]byte, error) { return nil, errors.New("no answer: " + log) }},
		},
		Run: func(_ context.Context, name string, _ ...string) ([]byte, error) {
			return []byte(name + " says\n" + log), nil
		},
	}
	require.NoError(t, c.Write(t.Context(), &out))
	files := unpacked(t, out.Bytes())
	noSecret(t, files, secrets)
	for _, name := range []string{"INDEX", "status.json", "files/var/log/pods/metal3_ironic-x_uid/ironic/0.log", "files/var/log/pods/x/0.log.2026",
		"files/var/lib/ironic/log/deploy/u_metal3~node-1_2026/var/log/agent.log", "files/run/firstlight/site/site.yaml", "commands/dmesg",
		"files/" + cluster + "log/node-1.log", "files/" + cluster + "progress.json", "files/" + cluster + "cluster.json", "files/" + cluster + "installed.json",
		"files/" + cluster + "artifacts/verification.json",
		"files/var/lib/firstlight/audit/audit.log", "files/var/lib/firstlight/artifacts/audit/uploads.log"} {
		assert.Contains(t, files, name)
	}
	assert.Contains(t, files["files/var/log/pods/metal3_ironic-x_uid/ironic/0.log"], "0 plain=[redacted]", "the rest of the text is gone")
	assert.Contains(t, files["files/run/firstlight/site/site.yaml"], "username: admin")
	assert.Equal(t, "[all]\nvm  ansible_ssh_host=10.0.0.1 ansible_ssh_pass=[redacted] ansible_password=[redacted]\n", files["files/"+cluster+"hosts.ini"])
	for name := range files {
		for _, secret := range []string{"/ca/", "/secret/", "/ssh/", "/pki/", "admin.conf", "kubernetes.io~"} {
			assert.NotContains(t, name, secret, "a place of secrets was collected")
		}
	}
}

// A site with mistakes is the moment at which people send a bundle.
func TestSecretsOfASiteWithMistakes(t *testing.T) {
	collect := func(text string) map[string]string {
		root := t.TempDir()
		write(t, root, "run/firstlight/site/site.yaml", text)
		write(t, root, "var/lib/firstlight/journal.json", "it's-me-1, correct horse")
		var out bytes.Buffer
		require.NoError(t, (&Collector{Root: root, Now: time.Now, Run: func(context.Context, string, ...string) ([]byte, error) { return nil, nil }}).Write(t.Context(), &out))
		return unpacked(t, out.Bytes())
	}
	files := collect("name: 7\nnodes:\n- {name: a, bmc: {adress: x, password: 'it''s-me-1'}}\n- {name: b, os: {password: \"correct horse\"}}\n")
	noSecret(t, files, []string{"it's-me-1", "it''s-me-1", "correct horse"})
	assert.Contains(t, files["files/run/firstlight/site/site.yaml"], "adress: x")
	files = collect("nodes:\n- {name: a, bmc: {password: \"correct horse\"\n")
	assert.NotContains(t, files, "files/run/firstlight/site/site.yaml")
	assert.Contains(t, files["INDEX"], "its secrets cannot be told from the rest: yaml: line")
}

func TestWhatIsNoSecretStays(t *testing.T) {
	r := &Redactor{}
	r.AddNamed("username", "firstlight")
	r.AddNamed("usage-bootstrap-authentication", "true")
	r.AddNamed("password", "12345")
	text := `time=12 level=INFO user=firstlight ok=true
authorization:
  mode: Webhook
automountServiceAccountToken: false
tokenRequests: 3
certificate: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJlVENDQVIrZ0F3SUJBZ0lCQVRBS0JnZ3Foa2pPUFFRREFqQU9NUXd3Q2dZRFZRUURFd05pWldRd0hoY05Nall4TVRJ
http_basic authentication is on
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
`
	assert.Equal(t, text, string(r.Redact([]byte(text))))
	assert.Equal(t, "logged in with password: [redacted]", string(r.Redact([]byte("logged in with password: 12345"))))
}

func TestAPrivateKeyInBase64GoesWhereverItBegins(t *testing.T) {
	const key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIAabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\n"
	body := base64.StdEncoding.EncodeToString([]byte(key))[60:80]
	for _, before := range []string{"", "a", "ab", "abc"} {
		got := string((&Redactor{}).Redact([]byte("data: " + base64.StdEncoding.EncodeToString([]byte(before+key)))))
		assert.Contains(t, got, "[redacted]", "after %q", before)
		assert.NotContains(t, got, body)
	}
}

func TestWhatLooksLikeASecretGoes(t *testing.T) {
	r := &Redactor{}
	for _, c := range []struct{ text, want string }{
		{`password: hunter2`, `password: [redacted]`},
		{`{"agent_token": "abcdef", "x": 1}`, `{"agent_token": "[redacted]", "x": 1}`},
		{`kernel ipa-agent-token=abc123 quiet`, `kernel ipa-agent-token=[redacted] quiet`},
		{`ipa-api-url=https://172.22.0.1:6385/b/` + strings.Repeat("aZ_0", 10) + `abc quiet`, `ipa-api-url=https://172.22.0.1:6385/b/[redacted] quiet`},
		{`secret-key: abcdef`, `secret-key: [redacted]`},
		{`"private-key": "abcdef"`, `"private-key": "[redacted]"`},
		{`cookie eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl; x`, `cookie [redacted]; x`},
		{`Authorization: Basic YWRtaW46cGFzcw==`, `Authorization: Basic [redacted]`},
		{`curl -H "Bearer abc.def.123"`, `curl -H "Bearer [redacted]"`},
		{`http://admin:hunter2@10.0.0.5/x`, `http://admin:[redacted]@10.0.0.5/x`},
		{`root:$6$abcdefgh$ABCDEFGHIJKLMNOPQRSTUVWXYZ:1`, `root:[redacted]:1`},
		{"a\n-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nb", "a\n[redacted]\nb"},
		{"cut off: -----BEGIN PRIVATE KEY-----\nabc", "cut off: [redacted]"},
		{"key: " + base64.StdEncoding.EncodeToString([]byte("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIAabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\n")), "key: [redacted]"},
	} {
		got := string(r.Redact([]byte(c.text)))
		assert.Equal(t, c.want, got)
	}
}

// TestASecretGoesInEveryForm: however it is written down.
func TestASecretGoesInEveryForm(t *testing.T) {
	const secret = `ab?>~~"d/ e`
	r := &Redactor{}
	r.Add(secret)
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	for _, form := range []string{
		secret,
		encoded,
		strings.TrimRight(encoded, "="),
		base64.URLEncoding.EncodeToString([]byte(secret)),
		url.QueryEscape(secret),
		`ab?\u003e~~\"d/ e`, // JSON as Go writes it
	} {
		assert.Equal(t, "x [redacted] y", string(r.Redact([]byte("x "+form+" y"))), form)
	}
}

// TestSecretsAreLearnedWhereTheyAre: what lies in one of the places is hidden wherever else it turns up.
func TestSecretsAreLearnedWhereTheyAre(t *testing.T) {
	for _, place := range []string{
		"var/lib/firstlight/ca/ca.key",
		"var/lib/firstlight/secret/ironic",
		"var/lib/firstlight/ssh/ssh_host_ed25519_key",
		"etc/kubernetes/admin.conf",
		"var/lib/kubelet/pki/kubelet.key",
		"etc/ssh/ssh_host_ed25519_key",
		"run/secrets/token",
		"opt/kud/multi-cluster/edge/artifacts/admin.conf",
		"var/lib/kubelet/pods/1/volumes/kubernetes.io~secret/x/password",
	} {
		root := t.TempDir()
		write(t, root, place, "correcthorsebatterystaple")
		write(t, root, "var/lib/firstlight/journal.json", "it said correcthorsebatterystaple")
		var out bytes.Buffer
		c := &Collector{Root: root, Now: time.Now, Run: func(context.Context, string, ...string) ([]byte, error) { return nil, nil }}
		require.NoError(t, c.Write(t.Context(), &out))
		assert.Equal(t, "it said [redacted]", unpacked(t, out.Bytes())["files/var/lib/firstlight/journal.json"], place)
	}
}

// TestNothingIsThere: an appliance in pieces still gives a bundle that says what is missing.
func TestNothingIsThere(t *testing.T) {
	var out bytes.Buffer
	c := &Collector{
		Root:    t.TempDir(),
		Connect: func() (*rest.Config, error) { return nil, rest.ErrNotInCluster },
		Run:     func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no such program") },
		Sources: []Source{{"status.json", func(context.Context) ([]byte, error) { return nil, errors.New("the daemon does not answer") }}},
	}
	require.NoError(t, c.Write(t.Context(), &out))
	files := unpacked(t, out.Bytes())
	require.Len(t, files, 1)
	for _, want := range []string{"resources ", "missing: " + rest.ErrNotInCluster.Error(), "status.json ", "the daemon does not answer", "journalctl", "files/var/log/pods"} {
		assert.Contains(t, files["INDEX"], want)
	}
}

func TestLongFilesLoseTheirBeginning(t *testing.T) {
	root := t.TempDir()
	write(t, root, "var/log/pods/a/0.log", strings.Repeat("old line\n", fileLimit/9)+strings.Repeat("new line\n", 1000))
	var out bytes.Buffer
	c := &Collector{Root: root, Run: func(context.Context, string, ...string) ([]byte, error) { return nil, nil }}
	require.NoError(t, c.Write(t.Context(), &out))
	log := unpacked(t, out.Bytes())["files/var/log/pods/a/0.log"]
	assert.Len(t, log, fileLimit)
	assert.True(t, strings.HasSuffix(log, "new line\n"))
}

func FuzzRedactor(f *testing.F) {
	f.Add("password: hunter2 tail", "hunter2")
	f.Fuzz(func(t *testing.T, text, secret string) {
		r := &Redactor{}
		r.Add(secret)
		got := string(r.Redact([]byte(text)))
		s := strings.TrimSpace(secret)
		if len(s) >= whole && !isHarmless(s) && !strings.Contains(hidden, s) && !strings.ContainsAny(s, "[]") && strings.Contains(got, s) {
			t.Fatalf("%q is left in %q", s, got)
		}
	})
}
