package metal3

import (
	"fmt"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
)

// iommuScript has a node start with its IOMMU on from its second boot on: the parameters are the boot loader's to give.
// The stick's images look for the mark; others are told as Debian and Ubuntu are. It restarts the node once, before
// anything of it is in use, and never a second time, whatever the boot loader made of it.
const iommuScript = `test ! -e %[1]s || exit 0
touch %[1]s
grep -qw intel_iommu=on /proc/cmdline && exit 0
if command -v update-grub >/dev/null && test -d /etc/default; then
  mkdir -p /etc/default/grub.d
  echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX %[2]s"' >/etc/default/grub.d/firstlight-iommu.cfg
  update-grub
fi
sync
systemctl reboot
`

// bootCommands are what cloud-init runs early at every boot of a node (module bootcmd).
func bootCommands(n site.Node) []any {
	if !n.IOMMU {
		return nil
	}
	return []any{[]string{"sh", "-c", fmt.Sprintf(iommuScript, stick.IOMMUMark, stick.IOMMUParameters)}}
}
