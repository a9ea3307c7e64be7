package disk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// grubInShell makes commands of GRUB functions of bash, which reads the rest of grub.cfg as GRUB does. linux prints its
// command line, one word a line.
const grubInShell = `
set() { eval "${1%%=*}=\${1#*=}"; }
load_env() { slot=$SLOT; try=$TRY; }
save_env() { true; }
probe() { esp=uuid-of-esp; }
regexp() { disk=hd0; }
source() { echo "source $1"; version=1.2.3; verity=c0ffee; }
linux() { printf '%s\n' "$@"; }
serial() { true; }
terminal_output() { true; }
initrd() { true; }
sleep() { true; }
boot() { exit; }
reboot() { exit 1; }
root=hd0,gpt2
`

// TestOfGRUBsMemoryOnlyTheSlotCounts: nobody signs grubenv, and words in it must not become parameters of the kernel.
func TestOfGRUBsMemoryOnlyTheSlotCounts(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("needs bash")
	}
	config, err := os.ReadFile("../../overlays/esp/EFI/debian/grub.cfg")
	require.NoError(t, err)
	script := filepath.Join(t.TempDir(), "grub.sh")
	// In GRUB a parenthesis is a letter.
	letters := strings.NewReplacer("=($disk,gpt7)", `=\($disk,gpt7\)`, "=($disk,gpt8)", `=\($disk,gpt8\)`)
	require.NoError(t, os.WriteFile(script, []byte(grubInShell+letters.Replace(string(config))), 0o600))

	for _, c := range []struct{ slot, try, starts, from string }{
		{"a", "", "a", "(hd0,gpt7)"},
		{"b", "", "b", "(hd0,gpt8)"},
		{"", "", "a", "(hd0,gpt7)"},
		{"a", "b", "b", "(hd0,gpt8)"},
		{"b", "a", "a", "(hd0,gpt7)"},
		{"b", "a systemd.debug_shell", "b", "(hd0,gpt8)"},
		{"a systemd.debug_shell", "", "a", "(hd0,gpt7)"},
		{"b systemd.debug_shell", "", "a", "(hd0,gpt7)"},
	} {
		cmd := exec.Command("bash", script)
		cmd.Env = append(os.Environ(), "SLOT="+c.slot, "TRY="+c.try)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%+v: %s", c, out)
		lines := strings.Split(string(out), "\n")
		assert.Contains(t, lines, "firstlight.slot="+c.starts, "%+v", c)
		assert.Contains(t, lines, "source "+c.from+"/slot.cfg", "%+v", c)
		assert.Contains(t, lines, c.from+"/vmlinuz", "%+v", c)
		assert.Contains(t, lines, "firstlight.verity=c0ffee", "%+v", c)
		assert.NotContains(t, lines, "systemd.debug_shell", "%+v", c)
	}
}
