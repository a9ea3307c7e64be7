package initrd

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/stick"
)

const (
	overlay    = "../../../overlays/appliance"
	grubConfig = "../../../overlays/esp" + stick.GrubConfigPath
)

func text(t *testing.T, path string) string {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// docs/boot.md names every kernel parameter, unit, record field and screen there is.
func TestDocsTellTheBoot(t *testing.T) {
	doc := text(t, "../../../docs/boot.md")
	named := func(what, word string) { assert.Contains(t, doc, word, what) }

	linux := regexp.MustCompile(`(?m)linux (\S+) (.*)$`).FindStringSubmatch(text(t, grubConfig))
	require.NotNil(t, linux)
	for _, word := range strings.Fields(linux[2]) {
		if key, _, _ := strings.Cut(word, "="); strings.HasPrefix(key, "firstlight.") {
			word = key // its value is another on each stick
		}
		named("kernel parameter of grub.cfg", "`"+word+"`")
	}
	units, err := filepath.Glob(overlay + "/usr/lib/systemd/system/firstlight*.service")
	require.NoError(t, err)
	require.NotEmpty(t, units)
	for _, unit := range units {
		named("unit", filepath.Base(unit))
	}
	for _, record := range []any{
		stick.BootInfo{Partitions: []stick.Partition{{}}, Disk: stick.Disk{Model: "x"}},
		stick.StorageInfo{Reason: "x", Device: "x", GUID: "x", Bytes: 1},
	} {
		b, err := json.Marshal(record)
		require.NoError(t, err)
		for _, field := range regexp.MustCompile(`"(\w+)":`).FindAllStringSubmatch(string(b), -1) {
			named("record field", "`"+field[1]+"`")
		}
	}
	for _, path := range []string{stick.BootInfoFile, stick.StorageInfoFile, stick.DamageFile, stick.SiteDir, stick.DataDir, WatchArgument} {
		named("path", "`"+path)
	}
	for _, state := range []stick.StorageState{stick.StorageData, stick.StorageVolatile, stick.StorageBroken} {
		named("storage state", "- `"+string(state)+"`: ")
	}
	b := stick.BootInfo{}
	for screen, phrase := range map[string]string{
		searchScreen(errNotSeen, params{}, nil, 0):       "looks for the stick it was started from",
		searchScreen(errDuplicateGUID, params{}, nil, 0): "two disks hold an ESP with the same GUID",
		failureScreen(b, errors.New("x")):                "found its stick and cannot start from it",
		damageScreen([]string{"x"}):                      "THE STICK IS DAMAGED",
		removedScreen("x"):                               "THE STICK IS GONE",
		stuckScreen(errors.New("x")):                     "cannot start.",
	} {
		assert.Contains(t, screen, phrase)
		named("screen", "`"+phrase+"`")
	}
	for _, name := range []string{stick.PartitionBIOS, stick.PartitionESP, stick.PartitionSite, stick.PartitionRootA, stick.PartitionRootB, stick.PartitionData} {
		named("partition", "\n| "+name+" |")
	}
}

// grub.cfg, the two commands and the contract use the same words.
func TestGrubConfigAgrees(t *testing.T) {
	cfg := text(t, grubConfig)
	assert.Contains(t, cfg, "linux "+stick.KernelPath+" ")
	assert.Contains(t, cfg, "initrd "+stick.InitramfsPath+"\n")
	assert.Contains(t, cfg, " "+stick.ParamESP+"=$esp")
	assert.Contains(t, cfg, " "+stick.ParamVerity+"="+stick.VerityPlaceholder+"\n")
	assert.Contains(t, cfg, " "+stick.ParamVersion+"="+stick.VersionPlaceholder+" ")
	assert.Equal(t, 1, strings.Count(cfg, stick.VersionPlaceholder))
	assert.Equal(t, 1, strings.Count(cfg, stick.VerityPlaceholder))
}
