package simulator

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestADiskIsFoundByBothOfItsNumbers, as the ramdisk does: one that shares its serial number is another one.
func TestADiskIsFoundByBothOfItsNumbers(t *testing.T) {
	disks := []Disk{
		{Name: "/dev/sda", Serial: "A", WWN: "0x1"},
		{Name: "/dev/sdb", Serial: "A", WWN: "0x2"},
		{Name: "/dev/sdc", Serial: "C"},
		{Name: "/dev/sdd"},
		{Name: "/dev/sde", Serial: "E"},
		{Name: "/dev/sdf", Serial: "E"},
	}
	for _, c := range []struct {
		named diskName
		found string
		error string
	}{
		{diskName{Name: "/dev/sdx", Serial: "A", WWN: "0x2"}, "/dev/sdb", ""},
		{diskName{Name: "/dev/sdx", Serial: "C"}, "/dev/sdc", ""},
		{diskName{Name: "/dev/sdd"}, "/dev/sdd", ""},
		{diskName{Name: "/dev/sda", Serial: "A"}, "", `0 disks have the serial number "A" and the WWN ""`},
		{diskName{Name: "/dev/sdc", Serial: "C", WWN: "0x3"}, "", "0 disks"},
		{diskName{Name: "/dev/sde", Serial: "E"}, "", "2 disks"},
	} {
		d, err := findNamed(disks, c.named)
		if c.error != "" {
			require.NotNil(t, err, "%+v", c.named)
			assert.Contains(t, err.Details, c.error)
			continue
		}
		require.Nil(t, err, "%+v", c.named)
		assert.Equal(t, c.found, d.Name)
	}
}
