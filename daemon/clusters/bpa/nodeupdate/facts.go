package nodeupdate

import (
	"strings"

	"firstlight.dev/firstlight/daemon/clusters/bpa/software"
)

// bootScript says which boot a node is in, and whether it should end. Debian's own kernel packages do not write
// /run/reboot-required unless unattended-upgrades is installed; but when a kernel came after the start, its file was
// created since. Both are over with the reboot.
const bootScript = `echo "firstlight: boot $(cat /proc/sys/kernel/random/boot_id)"
began=$(sed -n 's/^btime //p' /proc/stat)
newer=$(find /boot -maxdepth 1 -name 'vmlinuz-*' -newerct "@$began" 2>/dev/null)
if [ -e /run/reboot-required ] || [ -n "$newer" ]; then
	echo "firstlight: reboot-required yes"
fi
`

// FactsScript asks a node for its Facts, for /bin/sh as root; owner is whose uploads it gets.
func FactsScript(owner string, packages []software.Package) string {
	return bootScript + software.PreviewScript(owner, packages)
}

// ReadFacts reads what FactsScript printed for packages; said is what it printed on standard error.
func ReadFacts(packages []software.Package, out, said string) *Facts {
	f := &Facts{Preview: software.ReadPreview(packages, out, said)}
	for line := range strings.Lines(out) {
		switch words := strings.Fields(line); {
		case len(words) != 3 || words[0] != "firstlight:":
		case words[1] == "boot":
			f.BootID = words[2]
		case words[1] == "reboot-required":
			f.NeedsReboot = true
		}
	}
	return f
}

// RebootScript has a node restart.
const RebootScript = "systemctl reboot\n"
