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
