package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What one owner uploads is in that owner's suite alone, whoever was first.
func TestEachOwnerHasASuite(t *testing.T) {
	r, served := repository(t)
	r.Pools[1].Owner = func(file string) string { owner, _, _ := strings.Cut(file, "."); return owner }
	require.NoError(t, os.Remove(filepath.Join(served, "local", "mine_1_all.deb")))
	out := map[string]string{}
	r.LeftOut = func(file, why string) { out[file] = why }
	put := func(file, name, version string) {
		control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: me <me@example.org>\nDescription: greets\n", name, version)
		require.NoError(t, os.WriteFile(filepath.Join(served, "local", file), deb(t, control, ".xz"), 0o644))
	}
	read := func(suite string) string {
		text, err := os.ReadFile(filepath.Join(served, "dists", suite, indexPath))
		require.NoError(t, err, suite)
		return string(text)
	}
	write := func() {
		clear(out)
		_, err := r.Write(t.Context())
		require.NoError(t, err)
	}
	put("alpha.edge.bash.deb", "bash-completion", "1:999")
	put("beta.edge.greeting.deb", "greeting", "1")
	put("alpha.edge.greeting.deb", "greeting", "2")
	put("beta.edge.hello.deb", "hello", "99")
	put("firstlight.edge.greeting.deb", "greeting", "3")
	write()
	assert.Contains(t, read(Suite), "Package: hello\n")
	assert.NotContains(t, read(Suite), "local/", "an upload is in the stick's suite")
	assert.Contains(t, read("alpha"), "Filename: local/alpha.edge.greeting.deb\n")
	assert.Contains(t, read("alpha"), "Filename: local/alpha.edge.bash.deb\n")
	assert.NotContains(t, read("alpha"), "local/beta.")
	assert.Contains(t, read("beta"), "Filename: local/beta.edge.greeting.deb\n", "another owner's name keeps it out")
	assert.NotContains(t, read("beta"), "local/alpha.")
	assert.NotContains(t, read("beta"), "Package: hello\n", "an upload stands for a package of the stick")
	assert.Equal(t, map[string]string{
		"local/beta.edge.hello.deb":          "the stick carries hello, which stays as it is",
		"local/firstlight.edge.greeting.deb": "the suite firstlight is the stick's; upload it under another owner's name",
	}, out)
	release, err := os.ReadFile(filepath.Join(served, "dists", "alpha", "InRelease"))
	require.NoError(t, err)
	text, ok := r.Key.open(release)
	require.True(t, ok)
	assert.Contains(t, string(text), "\nCodename: alpha\n")

	r.Owners = []string{"gamma"}
	for _, file := range []string{"alpha.edge.greeting.deb", "alpha.edge.bash.deb"} {
		require.NoError(t, os.Remove(filepath.Join(served, "local", file)))
	}
	write()
	assert.Empty(t, read("gamma"), "an owner without uploads has no suite, and apt fails on its nodes")
	assert.Empty(t, read("alpha"), "what was removed is still offered")
}
