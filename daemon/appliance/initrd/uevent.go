package initrd

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// uevent is what the kernel tells about a device: KEY=value, as in
// Documentation/core-api/kobject.rst.
type uevent map[string]string

// parseUevent splits one datagram. The first part, action@path, repeats two of the keys.
func parseUevent(b []byte) uevent {
	u := uevent{}
	for part := range strings.SplitSeq(string(b), "\x00") {
		if k, v, ok := strings.Cut(part, "="); ok {
			u[k] = v
		}
	}
	return u
}

// openUevents opens the kernel's multicast group. It must happen before the devices that
// exist already are looked at: whatever comes in between would be missed.
func openUevents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open uevent socket: %w", err)
	}

	// Loading drivers makes hundreds of events at once. A smaller buffer is no error:
	// the disks are looked at again every second in any case.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind uevent socket: %w", err)
	}

	return os.NewFile(uintptr(fd), "uevents"), nil
}

// readUevents hands on every event until the socket is closed. Overruns are passed over.
func readUevents(f *os.File, out chan<- uevent) {
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(int(f.Fd()), buf)
		switch err {
		case nil:
			out <- parseUevent(buf[:n])
		case unix.EINTR, unix.ENOBUFS, unix.EAGAIN:
		default:
			return
		}
	}
}
