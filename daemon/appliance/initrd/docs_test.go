package initrd

import (
	"encoding/json"
	"errors"
	"fmt"
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
		if word == "$trial" {
			continue // below
		}
		if key, _, _ := strings.Cut(word, "="); strings.HasPrefix(key, "firstlight.") {
			word = key // its value is another on each stick
		}
		named("kernel parameter of grub.cfg", "`"+word+"`")
	}
	trial := regexp.MustCompile(`set trial="(.+)"`).FindStringSubmatch(text(t, grubConfig))
	require.NotNil(t, trial)
	for _, word := range strings.Fields(trial[1]) {
		named("kernel parameter of a trial", "`"+word+"`")
	}
	units, err := filepath.Glob(overlay + "/usr/lib/systemd/system/firstlight*.*er*")
	require.NoError(t, err)
	require.NotEmpty(t, units)
	for _, unit := range units {
		named("unit", filepath.Base(unit))
	}
	for _, record := range []any{
		stick.BootInfo{Trial: true, Partitions: []stick.Partition{{}}, Disk: stick.Disk{Model: "x"}},
		stick.StorageInfo{Reason: "x", Device: "x", GUID: "x", Bytes: 1, Seal: "x", KeyFile: true, SealNote: "x"},
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
	for _, state := range []stick.StorageState{stick.StorageData, stick.StorageVolatile, stick.StorageBroken, stick.StorageLocked} {
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
	for _, name := range []string{stick.PartitionBIOS, stick.PartitionESP, stick.PartitionSite, stick.PartitionRootA, stick.PartitionRootB, stick.PartitionData, stick.PartitionBootA, stick.PartitionBootB} {
		named("partition", "\n| "+name+" |")
	}
}

// grub.cfg, the two commands and the contract use the same words.
func TestGrubConfigAgrees(t *testing.T) {
	cfg := text(t, grubConfig)
	for _, words := range []string{
		"linux $boot/" + stick.KernelName + " ",
		"initrd $boot/" + stick.InitramfsName + "\n",
		"source $boot/" + stick.SlotConfigName + "\n",
		"load_env --file " + stick.EnvironmentPath + " --skip-sig slot try\n",
		"save_env --file " + stick.EnvironmentPath + " try\n",
		fmt.Sprintf("set slot=%s\n", stick.SlotA),
		fmt.Sprintf("set boot=($disk,gpt%d)\nif [ \"$slot\" = %s ]\nthen\n  set boot=($disk,gpt%d)\n", stick.NumberBootA, stick.SlotB, stick.NumberBootB),
		" " + stick.ParamESP + "=$esp ",
		" " + stick.ParamSlot + "=$slot $trial ",
		"\"" + stick.ParamTrial + "=1 ",
		" " + stick.ParamVerity + "=$verity\n",
		" " + stick.ParamVersion + "=$version ",
	} {
		assert.Contains(t, cfg, words)
	}

	config := string(stick.SlotConfig{Version: "1", RootHash: hash}.Encode())
	assert.Contains(t, config, "\nset version=1\n")
	assert.Contains(t, config, "\nset verity="+hash+"\n")
}

// TestGrubTriesASlotOnce: what asks for the trial is taken out and on the stick before the tried slot is chosen.
func TestGrubTriesASlotOnce(t *testing.T) {
	cfg := text(t, grubConfig)
	at := -1
	for _, words := range []string{"load_env ", "set tried=$try\n", "set try=\n", "if save_env ", "set slot=$tried\n", "set trial=\"", "regexp ", "linux "} {
		next := strings.Index(cfg[at+1:], words)
		require.GreaterOrEqual(t, next, 0, "%s does not come after what must be before it", words)
		at += 1 + next
	}
}
