package ovn

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setTxChecksum is ETHTOOL_STXCSUM of linux/ethtool.h.
const setTxChecksum = 0x17

// DisableChecksumOffload has the kernel write checksums, and split large packets, before an interface of a namespace sends
// them. ovs-vswitchd takes packets from interfaces as they are; a checksum that a device should write never gets written.
func DisableChecksumOffload(namespace, name string) error {
	disable := func() error {
		socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(socket)

		// struct ethtool_value, by way of struct ifreq.
		value := struct{ command, data uint32 }{setTxChecksum, 0}
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			rest [16]byte
		}{data: unsafe.Pointer(&value)}
		copy(request.name[:unix.IFNAMSIZ-1], name)
		if _, _, fault := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL,
			uintptr(unsafe.Pointer(&request))); fault != 0 {
			return fault
		}
		return nil
	}

	var err error
	if namespace == "" {
		err = disable()
	} else {
		err = inNamespace(namespace, disable)
	}
	if err != nil {
		return fmt.Errorf("switch off checksum offload of %s: %w", name, err)
	}
	return nil
}
