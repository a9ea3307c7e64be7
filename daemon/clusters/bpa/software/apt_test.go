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

// The script, run by this machine's apt, which only says what it would install: a package that another one merely
// recommends is chosen by whoever uploads it, so nobody's Software may bring it along.
func TestWhatIsOnlyRecommendedIsNotInstalled(t *testing.T) {
	for _, program := range []string{"apt-get", "apt-cache", "dpkg-query"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s of Debian", program)
		}
	}
	dir := t.TempDir()
	for _, d := range []string{"repository", "lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d", "dpkg/info"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	put := func(name, text string) { require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)) }
	stanza := func(name, version, more string) string {
		return fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: amd64\n%sFilename: ./%s.deb\nSize: 1\nSHA256: %064d\n\n", name, version, more, name, 0)
	}
	put("repository/Packages", stanza("curl", "8", "Depends: libcurl\nRecommends: bash-completion\n")+
		stanza("libcurl", "8", "")+stanza("bash-completion", "1:999", ""))
	put("etc/sources.list", fmt.Sprintf("deb [trusted=yes] copy:%s/repository ./\n", dir))
	put("dpkg/status", "")
	put("apt.conf", fmt.Sprintf(`Dir::State "%[1]s"; Dir::State::status "%[1]s/dpkg/status"; Dir::Cache "%[1]s/cache"; Dir::Etc "%[1]s/etc";
APT::Architecture "amd64"; APT::Sandbox::User "root"; Acquire::Languages "none"; APT::Get::Simulate "true"; APT::Install-Recommends "true";
`, dir))

	cmd := exec.Command("/bin/sh", "-s")
	cmd.Stdin = strings.NewReader(Script([]Package{{"curl", ""}}))
	cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(dir, "apt.conf"), "DPKG_ADMINDIR="+filepath.Join(dir, "dpkg"))
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	require.NoError(t, cmd.Run(), said.String())
	assert.Contains(t, said.String(), "Inst curl ", out.String())
	assert.Contains(t, said.String(), "Inst libcurl ")
	assert.NotContains(t, said.String(), "Inst bash-completion ")
}
