// Package secretscan holds what an appliance in a sandbox keeps to the list of its secrets: package vault's.
package secretscan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// private are the folders in which every file is a secret, but for those that end as open says.
var private = []string{"/var/lib/firstlight/secret/", "/var/lib/firstlight/ssh/", "/var/lib/firstlight/ca/"}

var open = []string{".crt", ".pub", "/authorized_keys", "/known_hosts"}

// marks are in files that hold a key, wherever they are.
var marks = [][]byte{[]byte("PRIVATE KEY-----"), []byte("client-key-data:")}

const maxBytes = 4 << 20 // of a file that may hold a key

// Check finds files that hold a secret, and Secrets of the appliance's namespaces, that are on no list; and that what
// firstlightd secrets prints has no value. at least are the secrets that must be found.
func Check(t *testing.T, ctx context.Context, b *sandbox.Sandbox, atLeast ...string) {
	t.Helper()
	found := map[string]int{}
	var values [][]byte
	top := filepath.Clean(b.DataPath("/"))
	require.NoError(t, filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, top)
		switch {
		case errors.Is(err, fs.ErrNotExist): // the appliance lives
			return nil
		case err != nil:
			return err
		case name == "/var/lib/containerd": // gigabytes, the same on every appliance
			return fs.SkipDir
		case !e.Type().IsRegular():
			return nil
		}

		text, err := readSecret(path, name)
		if err != nil || text == nil {
			return err
		}
		s, listed := vault.OfFile(name)
		assert.True(t, listed, "%s holds a secret and is on no list: add it to daemon/appliance/vault/secrets.go", name)
		found[s.Name]++
		if s.Name == "authority" || s.Name == "log-in to nodes" || s.Name == "password of Ironic" {
			values = append(values, firstLines(text)...)
		}
		return nil
	}))
	t.Logf("files with secrets: %v", found)

	said, err := b.Run(ctx, "firstlightd", "secrets", "-o", "json")
	require.NoError(t, err)
	var list struct {
		Secrets  []vault.Held `json:"secrets"`
		Unlisted []string     `json:"unlisted"`
		Error    string       `json:"error"`
	}
	require.NoError(t, json.Unmarshal([]byte(said), &list))
	assert.Empty(t, list.Error)
	assert.Empty(t, list.Unlisted, "Secrets on no list: add them to daemon/appliance/vault/secrets.go")
	held := map[string]int{}
	for _, s := range list.Secrets {
		held[s.Name] = s.Count
	}
	for _, name := range atLeast {
		assert.Positive(t, held[name], "firstlightd secrets does not list %s", name)
		assert.Positive(t, found[name], "the search finds no file of %s", name)
	}

	text, err := b.Run(ctx, "firstlightd", "secrets")
	require.NoError(t, err)
	t.Logf("firstlightd secrets:\n%s", text)
	for _, value := range values {
		assert.NotContains(t, said+text, string(value), "a value is shown")
	}
	t.Logf("values looked for: %d", len(values))
}

// readSecret is what a file has that holds a secret; nil if it holds none.
func readSecret(path, name string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxBytes || info.Size() == 0 {
		return nil, nil
	}

	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}

	for _, dir := range private {
		if strings.HasPrefix(name, dir) && !isOpen(name) {
			return text, nil
		}
	}
	for _, mark := range marks {
		if bytes.Contains(text, mark) {
			return text, nil
		}
	}

	return nil, nil
}

func isOpen(name string) bool {
	for _, end := range open {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// firstLines are lines that are long enough to be nothing but a secret's.
func firstLines(text []byte) (lines [][]byte) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 30 && !bytes.HasPrefix(line, []byte("-----")) {
			lines = append(lines, line)
		}
	}
	return lines
}
