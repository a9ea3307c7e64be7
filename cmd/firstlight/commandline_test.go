package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/commandline/commandlinetest"
	"firstlight.dev/firstlight/image/lab/view"
	"firstlight.dev/firstlight/image/lab/virtualrack"
)

// TestEveryCommandLine: -h is 0 and what a command does not know is 2, in each command that there is.
func TestEveryCommandLine(t *testing.T) {
	t.Setenv("FIRSTLIGHT_CACHE", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	theirs := []string{"lab kubectl", "try kubectl", "installed kubectl", "installed login"} // every word
	for _, c := range applianceCommands {
		theirs = append(theirs, c.name, "installed "+c.name)
	}
	seen := commandlinetest.CheckUsage(t, newRootCommand, commandlinetest.Exceptions{
		// files; what follows a name is the machine's, or the command's
		AnyArguments: []string{"site validate", "lab ssh", "proxy", "try shell", "try as-root", "installed shell"},
		AnyFlags:     theirs,
	})
	assert.Greater(t, seen, 30)
}

func TestExitCodes(t *testing.T) {
	for line, want := range map[string]int{
		"":                                 0,
		"bulid":                            2,
		"build nonsense":                   2,
		"version nonsense":                 2,
		"help build":                       0,
		"help lab up":                      0,
		"help bulid":                       2,
		"help lab pu":                      2,
		"completion nonsense":              2,
		"lock --site site.yaml":            2, // a lock knows of no site and makes no image
		"lock --out x.img":                 2,
		"lock --site site.yaml -h":         2,
		"build --site site.yaml -h":        0,
		"plan --out x.img -h":              0,
		"boot --uefi --secure-boot":        2,
		"boot --uefi --secure-boot -h":     0,
		"boot --uefi none.img":             1,
		"verify none.img -o text":          1,
		"flash none.img /dev/none -o json": 1,
	} {
		assert.Equal(t, want, run(t.Context(), strings.Fields(line)), line)
	}
}

// TestEveryOutputKnowsTextAndJSON and nothing else, wherever there is -o.
func TestEveryOutputKnowsTextAndJSON(t *testing.T) {
	with := commandlinetest.CheckOutputs(t, newRootCommand)
	assert.Subset(t, with, []string{
		"build", "plan", "lock", "verify", "flash", "version", "site validate", "site show", "lab status", "lab why",
		"artifact list", "artifact show",
	})
}

func TestVersionIsJSON(t *testing.T) {
	out, _, err := command(t, "", "version", "-o", "json")
	require.NoError(t, err)
	plain, _, err := command(t, "", "version")
	require.NoError(t, err)
	var got buildVersion
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, plain, got.text())
	assert.True(t, strings.HasPrefix(plain, assets.Version), plain)
	assert.Contains(t, plain, runtime.Version())
}

func TestSiteShowIsYAMLForPeople(t *testing.T) {
	want, _, err := command(t, "", "site", "show")
	require.NoError(t, err)
	for _, word := range []string{"text", "yaml"} {
		got, _, err := command(t, "", "site", "show", "-o", word)
		require.NoError(t, err)
		assert.Equal(t, want, got, word)
	}
}

// TestWatchedAsJSONIsALinePerChange: what did not change is not told again.
func TestWatchedAsJSONIsALinePerChange(t *testing.T) {
	machine := func(phase string, cpu float64) virtualrack.Status {
		return virtualrack.Status{Machines: []virtualrack.Machine{{Name: "node-1", Phase: phase, CPU: cpu}}}
	}
	var out bytes.Buffer
	see := view.JSONLines(&out, func(virtualrack.Status) ([]virtualrack.Span, error) { return []virtualrack.Span{}, nil })
	last := virtualrack.Status{}
	for _, now := range []virtualrack.Status{{}, machine("new", 1), machine("new", 2), machine("inspecting", 3)} {
		require.NoError(t, see(last, now))
		last = now
	}
	told := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, told, 3)
	for i, want := range []string{"", "new", "inspecting"} {
		var got struct {
			Machines []virtualrack.Machine
			Phases   []virtualrack.Span
		}
		require.NoError(t, json.Unmarshal([]byte(told[i]), &got))
		assert.NotNil(t, got.Phases)
		if want != "" {
			assert.Equal(t, want, got.Machines[0].Phase)
		}
	}
}

func TestLabReasons(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := virtualrack.Status{
		Machines: []virtualrack.Machine{{Name: "node-1", On: true, Phase: "new", Since: now, Why: "it is new"}, {Name: "node-2", On: true, Phase: "new", Since: now}},
		Clusters: []virtualrack.Cluster{{Name: "edge", Phase: "waiting", Since: now.Add(-time.Minute), Why: "nodes"}},
	}
	var out bytes.Buffer
	require.NoError(t, view.ListReasons(s, nil, now).Write(&out))
	assert.Equal(t, "node-1: new for 0s; it is new\nnode-2: new for 0s\ncluster edge: waiting for 1m0s; nodes\n", out.String())
	one, err := json.Marshal(view.ListReasons(s, []string{"node-1"}, now))
	require.NoError(t, err)
	assert.Contains(t, string(one), `"name":"node-1"`)
	assert.Contains(t, string(one), `"text":"node-1: new for 0s; it is new"`)
	assert.Contains(t, string(one), `"clusters":[]`)
	assert.NotContains(t, string(one), "node-2")
}

// TestFlashedIsJSON: nothing but the document is on standard output.
func TestFlashedIsJSON(t *testing.T) {
	image, stick := tinyImage(t), filepath.Join(t.TempDir(), "stick")
	emptyFile(t, stick, 5<<20)
	out, said, err := command(t, "", "flash", image, stick, "--force-device", stick, "-o", "json")
	require.NoError(t, err)
	var got flashResult
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	assert.Equal(t, stick, got.Device.Path)
	assert.Equal(t, image, got.Image)
	assert.Positive(t, got.Written)
	assert.Regexp(t, `^[0-9A-Fa-f-]{36}$`, got.GUID)
	assert.Contains(t, said, "verify 100 % of ")
}
