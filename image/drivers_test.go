package image

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/recipe"
)

// neededDrivers are modules, and directories of them, that no root may leave out: one for each kind of thing
// that a server has, or that Kubernetes asks of a kernel.
var neededDrivers = []string{
	// Networks: all of Ethernet, InfiniBand, virtual ones, by USB; what their drivers need.
	"drivers/net/ethernet/any", "drivers/net/phy/any", "drivers/net/mdio/any", "drivers/net/bonding/bonding",
	"drivers/net/team/team", "drivers/net/usb/cdc_ether", "drivers/net/virtio_net", "drivers/net/vmxnet3/vmxnet3",
	"drivers/net/hyperv/hv_netvsc", "drivers/net/xen-netfront", "drivers/infiniband/any", "drivers/gnss/gnss",
	"drivers/ptp/ptp", "drivers/dca/dca", "drivers/mtd/mtd", "drivers/ssb/ssb", "drivers/pcmcia/pcmcia",
	// Disks and what they hang on.
	"drivers/ata/any", "drivers/block/any", "drivers/md/any", "drivers/message/fusion/any", "drivers/mmc/any",
	"drivers/nvdimm/any", "drivers/nvme/any", "drivers/scsi/any", "drivers/target/any", "drivers/ufs/any",
	"drivers/usb/host/any", "drivers/usb/storage/any", "drivers/pci/controller/vmd", "drivers/cdrom/cdrom",
	// Management: BMC, watchdogs, sensors, errors of memory, TPM, firmware, consoles, keyboards.
	"drivers/char/ipmi/any", "drivers/char/tpm/any", "drivers/char/hw_random/any", "drivers/edac/any",
	"drivers/firmware/any", "drivers/gpu/drm/ast/ast", "drivers/gpu/drm/mgag200/mgag200", "drivers/gpu/drm/tiny/bochs",
	"drivers/hid/hid-generic", "drivers/hid/usbhid/usbhid", "drivers/hwmon/any", "drivers/i2c/any",
	"drivers/iio/industrialio", "drivers/misc/mei/mei", "drivers/platform/x86/intel/intel_vsec", "drivers/powercap/any",
	"drivers/tty/any", "drivers/watchdog/any",
	// Virtual machines, and the hosts of such.
	"arch/x86/kvm/any", "drivers/hv/any", "drivers/vfio/any", "drivers/vhost/any", "drivers/virtio/any", "drivers/xen/any",
	// Cryptography and accelerators.
	"arch/x86/crypto/any", "crypto/any", "drivers/crypto/any", "drivers/dma/any", "lib/any",
	// File systems that somebody has.
	"fs/btrfs/btrfs", "fs/ceph/ceph", "fs/ext4/ext4", "fs/fat/vfat", "fs/fuse/cuse", "fs/isofs/isofs", "fs/nfs/nfs", "fs/nfsd/nfsd",
	"fs/nls/any", "fs/overlayfs/overlay", "fs/smb/client/cifs", "fs/squashfs/squashfs", "fs/udf/udf", "fs/xfs/xfs",
	// What pods and Services are made of.
	"drivers/net/geneve", "drivers/net/ipvlan/ipvlan", "drivers/net/macvlan", "drivers/net/tun", "drivers/net/veth",
	"drivers/net/vxlan/vxlan", "drivers/net/wireguard/wireguard", "net/bridge/any", "net/core/any", "net/ipv4/any",
	"net/ipv6/any", "net/netfilter/any", "net/openvswitch/any", "net/sched/any", "net/sctp/sctp", "net/xfrm/any",
}

func TestEveryRootHasTheDriversThatServersNeed(t *testing.T) {
	r, err := recipe.ReadFile("../assets/recipe.yaml")
	require.NoError(t, err)
	var with []string
	for _, root := range r.Roots {
		if !slices.Contains(root.Packages, "linux-image-amd64") {
			continue
		}
		with = append(with, root.Name)
		assert.Equal(t, "firmware", root.Firmware, "root %s: firmware of its own is on the stick once more", root.Name)
		assert.Equal(t, []string{"drivers"}, root.Omit, "root %s: with drivers of its own they are on the stick once more", root.Name)
		for _, name := range neededDrivers {
			file := "/usr/lib/modules/6.12.1-amd64/kernel/" + name + ".ko.xz"
			assert.False(t, debian.IsExcluded(file, root.Exclude, root.Include), "root %s leaves out %s", root.Name, name)
		}
	}
	assert.Equal(t, []string{"appliance", "ramdisk", "node"}, with)
}
