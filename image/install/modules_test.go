package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBridgesStayAsTheyWere when br_netfilter is loaded for the appliance, unless the machine's owner wants it so.
func TestBridgesStayAsTheyWere(t *testing.T) {
	const call = "bridge-nf-call-iptables"
	for name, c := range map[string]struct {
		isLoaded, isAbsent bool
		owner              string // what sysctl.d says
		want               string
	}{
		"loaded for the appliance": {want: "0"},
		"loaded before":            {isLoaded: true, want: "1"},
		"the owner wants it":       {owner: "1", want: "1"},
		"no such module":           {isAbsent: true},
	} {
		dir := filepath.Join(t.TempDir(), "bridge")
		insert := func() {
			require.NoError(t, os.Mkdir(dir, 0o755), name)
			for _, file := range []string{call, "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte("1\n"), 0o644), name)
			}
		}
		if c.isLoaded {
			insert()
		}

		var loaded []string
		require.NoError(t, loadModules(dir, func(words ...string) {
			switch {
			case words[0] == "modprobe":
				loaded = append(loaded, words[2])
				if words[2] == bridgeFilter && !c.isLoaded && !c.isAbsent {
					insert()
				}
			case c.owner != "":
				assert.Equal(t, "--prefix=/net/bridge", words[1], name)
				require.NoError(t, os.WriteFile(filepath.Join(dir, call), []byte(c.owner), 0o644), name)
			}
		}), name)
		assert.Equal(t, modules, loaded, name)
		value, _ := os.ReadFile(filepath.Join(dir, call)) // there may be none
		assert.Equal(t, c.want, strings.TrimSpace(string(value)), name)
	}
}

// TestLimitsAreRaised for what root has on the machine and in the appliance together, and never lowered.
func TestLimitsAreRaised(t *testing.T) {
	dir := t.TempDir()
	assert.ErrorIs(t, raiseLimits(dir), os.ErrNotExist)
	for have, want := range map[string]string{"128\n": "8192", "8192\n": "8192", "65536\n": "65536"} {
		for name, text := range map[string]string{"max_user_instances": have, "max_user_watches": "1048576\n"} {
			path := filepath.Join(dir, "fs/inotify", name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		require.NoError(t, raiseLimits(dir))
		text, err := os.ReadFile(filepath.Join(dir, "fs/inotify/max_user_instances"))
		require.NoError(t, err)
		assert.Equal(t, want, strings.TrimSpace(string(text)))
		text, err = os.ReadFile(filepath.Join(dir, "fs/inotify/max_user_watches"))
		require.NoError(t, err)
		assert.Equal(t, "1048576", strings.TrimSpace(string(text)))
	}
}
