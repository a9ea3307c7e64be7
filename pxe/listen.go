package pxe

import (
	"errors"
	"net"
	"syscall"
)

// ListenOn listens on one interface only (SO_BINDTODEVICE), whatever address is listened at; "" is all.
func ListenOn(device string) *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		if device == "" {
			return nil
		}

		var bindErr error
		err := raw.Control(func(fd uintptr) { bindErr = syscall.BindToDevice(int(fd), device) })
		return errors.Join(err, bindErr)
	}}
}
