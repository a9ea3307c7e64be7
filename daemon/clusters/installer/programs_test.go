package installer

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
)

func TestPackagesOfANode(t *testing.T) {
	const stick, other = "1.36.3-0firstlight0.1.0+77198038ab19", "1.36.2-0firstlight0.1.0+0123456789ab"
	answer := func(lines ...string) string { return strings.Join(lines, "\n") + "\n" }
	all := func(version string) []string {
		var lines []string
		for range programPackages {
			lines = append(lines, "ii  "+version)
		}
		return append(lines, "1", "1")
	}
	changed := func(lines []string, at int, line string) []string {
		lines[at] = line
		return lines
	}
	for name, c := range map[string]struct {
		lines         []string
		version, says string
	}{
		"the stick's":                            {all(stick), stick, ""},
		"another stick's":                        {all(other), stick, "package kubelet has version " + other + ", not " + stick},
		"another stick's, in service":            {all(other), "", ""},
		"one is missing":                         {changed(all(stick), 1, "missing"), stick, "package kubeadm is not installed"},
		"one is missing, in service":             {changed(all(stick), 1, "missing"), "", "nothing is on a node in service: install it there"},
		"one was unpacked when the power failed": {changed(all(stick), 2, "iU  "+stick), stick, "package kubectl is not installed"},
		"its configuration was left":             {changed(all(stick), 0, "rc  "+stick), stick, "package kubelet is not installed"},
		"packets are not forwarded":              {changed(all(stick), len(programPackages), "0"), stick, "settings are not in effect"},
		"no overlay":                             {changed(all(stick), len(programPackages)+1, "0"), stick, "settings are not in effect"},
		"it said nothing":                        {nil, stick, "listed 1 lines"},
	} {
		err := checkPrograms(answer(c.lines...), c.version)
		if c.says == "" {
			assert.NoError(t, err, name)
			continue
		}
		assert.ErrorContains(t, err, c.says, name)
	}
}

func TestVersionOfPackagesByAManifest(t *testing.T) {
	const digest = "sha256:77198038ab1920073071036236e62637c8561dffb3a79b1e26d76fd59928999d"
	version, err := parsePackageVersion([]byte(`{"layers": [{"digest": "` + digest + `"}]}`))
	require.NoError(t, err)
	want := strings.TrimPrefix(assets.KubernetesVersion, "v") + "-0firstlight" + assets.Version + "+77198038ab19"
	assert.Equal(t, want, version)
	for _, text := range []string{"", "{}", `{"layers": [{}, {}]}`} {
		_, err := parsePackageVersion([]byte(text))
		assert.Error(t, err, text)
	}
}

func TestScriptsOfProgramsAreShell(t *testing.T) {
	for _, text := range []string{programsScript, install} {
		cmd := exec.Command("sh", "-n")
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		assert.NoError(t, err, string(out))
	}
}
