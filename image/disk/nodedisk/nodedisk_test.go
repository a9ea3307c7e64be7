package nodedisk

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/firmware"
	"firstlight.dev/firstlight/image/tree"
)

func TestGrubConfig(t *testing.T) {
	tr := tree.New(1)
	_, err := grubConfig(tr, "u", "quiet")
	assert.ErrorContains(t, err, "0 files match and not one")
	require.NoError(t, tr.File("/boot/vmlinuz-6", 0o644, nil, "t"))
	require.NoError(t, tr.File("/boot/initrd.img-6", 0o644, nil, "t"))
	text, err := grubConfig(tr, "u", "quiet")
	require.NoError(t, err)
	assert.Equal(t, `search --no-floppy --fs-uuid --set=root u
set iommu=
if [ -e ($root)/etc/firstlight-iommu ]; then set iommu="intel_iommu=on iommu=pt"; fi
linux /boot/vmlinuz-6 root=UUID=u quiet $iommu
initrd /boot/initrd.img-6
boot
`, string(text))
	require.NoError(t, tr.File(firmware.MicrocodePath, 0o644, nil, "t"))
	text, err = grubConfig(tr, "u", "quiet")
	require.NoError(t, err)
	assert.Contains(t, string(text), "\ninitrd /usr/lib/firmware/microcode.cpio /boot/initrd.img-6\n", "microcode comes first")
	require.NoError(t, tr.File("/boot/grub/grub.cfg", 0o644, nil, "t"))
	text, err = grubConfig(tr, "u", "")
	require.NoError(t, err)
	assert.Contains(t, string(text), "configfile /boot/grub/grub.cfg")
	assert.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, uuid("a", "b"))
}
