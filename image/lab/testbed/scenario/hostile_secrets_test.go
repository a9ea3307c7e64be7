package scenario_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

var (
	// word is a word of a password's, a token's or a key's length.
	word = regexp.MustCompile(`[A-Za-z0-9+/=_.$-]{20,}`)
	// digest is a sum of something that is no secret.
	digest = regexp.MustCompile(`sha256:[0-9a-f]{64}`)
	// hexadecimal is a key or token written that way.
	hexadecimal = regexp.MustCompile(`^[0-9a-f]{32,}$`)
	// publicBlock is a certificate or a public key.
	publicBlock = regexp.MustCompile(`(?s)-----BEGIN (CERTIFICATE|[A-Z ]*PUBLIC KEY[A-Z ]*)-----.*?-----END [A-Z ]+-----`)
	// publicValue are certificates in a kubeconfig, and public keys of SSH.
	publicValue = regexp.MustCompile(`(certificate-authority-data|client-certificate-data): \S+|ssh-[a-z0-9-]+ AAAA\S+`)
)

// looksDrawn tells whether a word is like a value that was drawn at random, and not a name or a path.
func looksDrawn(w string) bool {
	has := func(set string) bool { return strings.ContainsAny(w, set) }
	return hexadecimal.MatchString(w) ||
		has("0123456789") && has("abcdefghijklmnopqrstuvwxyz") && has("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
}

// secretWords are the values in a text that are worth stealing.
func secretWords(text string) (all []string) {
	for _, public := range []*regexp.Regexp{publicBlock, publicValue, digest} {
		text = public.ReplaceAllString(text, "")
	}
	for _, w := range word.FindAllString(text, -1) {
		if looksDrawn(w) {
			all = append(all, w)
		}
	}
	return all
}

// secretsIn are the values of a file: its words, or all of it if it is no text.
func secretsIn(file []byte) []string {
	if utf8.Valid(file) {
		return secretWords(string(file))
	}
	return []string{string(file)}
}

// minted are all secret values that the appliance has, and where each was found first: in files that the list of its
// secrets names, in Secrets of the API, and what ramdisks were given. Of databases that is what is in them.
type minted map[string]string

func (m minted) add(place string, values ...string) {
	for _, value := range values {
		if _, have := m[value]; !have {
			m[value] = place
		}
	}
}

// isDatabase tells of files with all of the API's Secrets and of Ironic's passwords, which are found elsewhere.
func isDatabase(name string) bool {
	return strings.HasPrefix(name, "/var/lib/etcd/") || strings.HasPrefix(name, "/var/lib/ironic/ironic.sqlite")
}

// largestSecret is more than any file with a secret has, those of artifacts apart, which are no secrets.
const largestSecret = 4 << 20

func findMinted(t *testing.T, ctx context.Context, d *scenario.Scenario) minted {
	t.Helper()
	m := minted{}
	m.add("site", d.Servers.Password(), nodePassword, posedPassword)
	for _, h := range d.Servers.Hosts() {
		m.add("ramdisks", h.ReceivedTokens()...)
	}

	for _, dir := range append(sandbox.DataDirs(), "/run/firstlight") {
		if dir == "/var/lib/containerd" { // gigabytes, the same on every appliance
			continue
		}
		top := d.Sandbox.Path("/")
		require.NoError(t, filepath.WalkDir(d.Sandbox.Path(dir), func(path string, e fs.DirEntry, err error) error {
			name := "/" + strings.TrimPrefix(strings.TrimPrefix(path, top), "/")
			if err != nil || isDatabase(name) {
				return nil // it was not there, or is not any more: the appliance lives
			}
			secret, listed := vault.OfFile(name)
			info, err := os.Stat(path) // of a pod's files those that links lead to
			if !listed || err != nil || !info.Mode().IsRegular() || info.Size() > largestSecret {
				return nil
			}
			if text, err := os.ReadFile(path); err == nil && !strings.HasSuffix(name, ".crt") && !strings.HasSuffix(name, ".pub") {
				m.add(secret.Name, secretsIn(text)...)
			}
			return nil
		}))
	}

	var list struct {
		Items []struct{ Data map[string][]byte }
	}
	require.NoError(t, json.Unmarshal([]byte(run(t, ctx, d, "kubectl", "get", "secrets", "-A", "-o", "json")), &list))
	for _, item := range list.Items {
		for _, value := range item.Data {
			m.add("Secrets of the API", secretWords(string(value))...)
		}
	}

	// What everybody may know.
	delete(m, scenario.ImageSum(scenario.ImageA))
	return m
}

// heardNoSecret looks for every secret of the appliance in all that came to the strangers, as it is and in base64.
func heardNoSecret(t *testing.T, ctx context.Context, d *scenario.Scenario, s *strangers) {
	t.Helper()
	values := findMinted(t, ctx, d)
	values.add("a token for uploads", s.right)
	places := map[string]int{}
	hashes := 0
	for value, place := range values {
		places[place]++
		if strings.HasPrefix(value, "$6$") || strings.HasPrefix(value, "$y$") {
			hashes++
		}
		for _, v := range s.all {
			if v.HasHeard(value) || v.HasHeard(base64.StdEncoding.EncodeToString([]byte(value))) {
				t.Errorf("the stranger on %s heard a secret of: %s", v.network, place) // its value belongs into no log
			}
		}
	}

	for _, v := range s.all {
		for _, w := range []string{"PRIVATE KEY", "hashed_passwd", "user_data", "agent_token", "configdrive"} {
			assert.False(t, v.HasHeard(w), "%s heard %s", v.network, w)
		}
		if _, open := v.listener("boot"); open { // only its ear has lines of status: that it hears nothing is no chance
			assert.True(t, v.HasHeard("HTTP/1.1 404"), "%s does not hear what comes by the wire", v.network)
		}
		bytes, frames, missed := v.Heard()
		t.Logf("the stranger on %s heard %d bytes, %d frames and answers by TLS; it missed %d frames", v.network, bytes, frames, missed)
		assert.Positive(t, frames, "it has no ear")
	}
	own := s.all[0]
	_, script := own.Ask(ctx, "GET", scenario.Boot+"/ipxe/"+strings.ReplaceAll(own.MAC, ":", "-"), "")
	_, after, _ := strings.Cut(script, "/b/")
	token, _, _ := strings.Cut(after, "/")
	assert.True(t, len(token) > 40 && own.HasHeard(token), "the token of its own boot is not found in what a stranger heard")
	t.Logf("%d secret values are in nothing that strangers heard: %v", len(values), places)
	assert.Positive(t, hashes, "the password of nodes is nowhere as a hash")
	for _, place := range []string{
		"ramdisks", "Secrets of the API", "authority", "log-in to nodes", "password of Ironic", "key of packages",
		"site", "Kubernetes' authorities", "Kubernetes' certificates", "files of pods",
	} {
		assert.Positive(t, places[place], "no secret was found of: %s", place)
	}
}
