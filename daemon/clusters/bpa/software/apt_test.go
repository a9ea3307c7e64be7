package software

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stanza is a package as an index has it.
func stanza(name, version, more string) string {
	return fmt.Sprintf(
		"Package: %s\nVersion: %s\nArchitecture: amd64\n%sFilename: pool/%s.deb\nSize: 1\nSHA256: %064d\n\n", name, version,
		more, name, 0,
	)
}

// simulate runs a script on a Debian of its own by this machine's apt, which only says what it would do. The node has
// the appliance's repository, with suites by name, and what is installed, as dpkg's status has it.
func simulate(t *testing.T, script string, suites map[string]string, installed ...string) (out, said string) {
	for _, program := range []string{"apt-get", "apt-cache", "dpkg-query"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s of Debian", program)
		}
	}
	dir := t.TempDir()
	put := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for _, d := range []string{"lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d", "dpkg/info"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for suite, index := range suites {
		put("repository/dists/"+suite+"/main/binary-amd64/Packages", index)
	}
	put("firstlight.sources", fmt.Sprintf("Types: deb\nURIs: copy:%s/repository\nSuites: firstlight\nComponents: main\nTrusted: yes\n", dir))
	put("dpkg/status", strings.Join(installed, ""))
	put("apt.conf", fmt.Sprintf(`Dir::State "%[1]s"; Dir::State::status "%[1]s/dpkg/status"; Dir::Cache "%[1]s/cache"; Dir::Etc "%[1]s/etc";
APT::Architecture "amd64"; APT::Sandbox::User "root"; Acquire::Languages "none"; APT::Get::Simulate "true"; APT::Install-Recommends "true";
`, dir))

	cmd := exec.Command("/bin/sh", "-s")
	const sources = "/etc/apt/sources.list.d/firstlight.sources"
	require.Contains(t, script, sources)
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(script, sources, filepath.Join(dir, "firstlight.sources")))
	cmd.Env = append(
		os.Environ(), "APT_CONFIG="+filepath.Join(dir, "apt.conf"), "DPKG_ADMINDIR="+filepath.Join(dir, "dpkg"),
		"TMPDIR="+dir,
	)
	var printed, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &errors
	require.NoError(t, cmd.Run(), errors.String())
	left, err := filepath.Glob(filepath.Join(dir, "tmp.*"))
	require.NoError(t, err)
	assert.Empty(t, left, "a file was left")
	return printed.String(), errors.String()
}

// What another one merely recommends is chosen by whoever uploads it, so nobody's Software may bring it along.
func TestWhatIsOnlyRecommendedIsNotInstalled(t *testing.T) {
	out, said := simulate(t, Script("beta", []Package{{"curl", ""}}), map[string]string{
		"firstlight": stanza("curl", "8", "Depends: libcurl\nRecommends: bash-completion\n") + stanza("libcurl", "8", ""),
		"beta":       stanza("bash-completion", "1:999", ""),
	})
	assert.Contains(t, said, "Inst curl ", out)
	assert.Contains(t, said, "Inst libcurl ")
	assert.NotContains(t, said, "Inst bash-completion ")
}

func TestNodesGetWhatTheirOwnerUploaded(t *testing.T) {
	suites := map[string]string{
		"firstlight": stanza("curl", "8", "Depends: libcurl\n"),
		"alpha":      stanza("libcurl", "1:999", "") + stanza("greeting", "1", ""),
		"beta":       stanza("tool", "1", ""),
	}
	out, said := simulate(t, Script("beta", []Package{{"curl", ""}, {"greeting", ""}, {"tool", ""}}), suites)
	assert.Contains(t, out, "firstlight: lacks greeting any", "beta's nodes see what alpha uploaded")
	assert.NotContains(t, out, "lacks tool", said)
	_, said = simulate(t, Script("beta", []Package{{"curl", ""}}), suites)
	assert.NotContains(t, said, "Inst ", "a dependency came from another owner: "+said)
	_, said = simulate(t, Script("alpha", []Package{{"greeting", ""}}), suites)
	assert.Contains(t, said, "Inst greeting ")
}
