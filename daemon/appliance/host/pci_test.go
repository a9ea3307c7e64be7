package host

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestThePCIFunctionOfANIC(t *testing.T) {
	for device, want := range map[string]string{
		"/sys/devices/pci0000:00/0000:00:1c.0/0000:3b:00.0":     "0000:3b:00.0",
		"/sys/devices/pci0000:00/0000:00:10.0/virtio2":          "0000:00:10.0",
		"/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0": "",
		"/sys/devices/virtual/net/dummy0":                       "",
	} {
		assert.Equal(t, want, pciFunction(device), device)
	}
}
