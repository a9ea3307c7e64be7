package install

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/netns"
)

// Files in runDir, which are there while the appliance has the machine's interfaces.
const (
	networkFile = "network"   // the appliance's network namespace is bound here, so that it outlives its processes
	lentFile    = "lent.json" // how the interfaces were
)

// lentNIC is an interface of the machine as it was before the appliance got it.
type lentNIC struct {
	Name     string `json:"name"`
	MAC      string `json:"mac"` // that it had, which need not be the hardware's
	MTU      int    `json:"mtu"` // bytes
	Up       bool   `json:"up"`
	Hardware string `json:"hardware,omitempty"` // the hardware's own MAC; "" if it has none, as a veth
}

// isAt reports whether a link is the interface: another one may have got its name.
func (n lentNIC) isAt(l netlink.Link) bool {
	return n.Hardware == "" || n.Hardware == permanentMAC(l.Attrs())
}

// lend moves the interfaces into the network of a process, and writes down how they were in dir. One that this machine
// has begun to use since it was installed is not taken: the machine may be reached by it.
func lend(dir string, nics []NIC, pid int) error {
	if err := checkUse(nics); err != nil {
		return err
	}

	var lent []lentNIC
	for _, n := range nics {
		l, err := findNIC(n)
		if err != nil {
			return err
		}
		a := l.Attrs()
		lent = append(lent, lentNIC{
			Name: a.Name,
			MAC:  a.HardwareAddr.String(),
			MTU:  a.MTU,
			Up:   a.Flags&net.FlagUp != 0,

			Hardware: permanentMAC(a),
		})
	}

	if err := writeJSON(filepath.Join(dir, lentFile), lent); err != nil {
		return err
	}
	network := filepath.Join(dir, networkFile)
	if err := os.WriteFile(network, nil, 0o600); err != nil {
		return fmt.Errorf("hold network: %w", err)
	}
	if err := unix.Mount(netns.PathOf(pid), network, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("hold network: %w", err)
	}

	for _, n := range lent {
		l, err := netlink.LinkByName(n.Name)
		if err == nil {
			err = netlink.LinkSetNsPid(l, pid)
		}
		if err != nil {
			return fmt.Errorf("give %s to the appliance: %w", n.Name, err)
		}
	}
	return nil
}

// inUseError says that this machine uses an interface itself.
type inUseError struct{ why string }

func (e *inUseError) Error() string {
	return "this machine uses an interface that is the appliance's, which does not start: " + e.why
}

// checkUse refuses interfaces that this machine uses itself.
func checkUse(nics []NIC) error {
	links, err := readLinks()
	if err != nil {
		return err
	}
	if why := useRefusals(links, nics); why != "" {
		return &inUseError{why}
	}
	return nil
}

// useRefusals says which of the interfaces this machine uses itself, and how; "" if it uses none.
func useRefusals(links []Link, nics []NIC) string {
	var all []string
	for _, l := range links {
		if slices.ContainsFunc(nics, func(n NIC) bool { return n.isOf(l) }) && l.refusal() != "" {
			all = append(all, l.refusal())
		}
	}
	return strings.Join(all, "; ")
}

// findNIC finds an interface of the machine: the site may name it by either, and until udev has named it, its name is
// another one.
func findNIC(n NIC) (netlink.Link, error) {
	all, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range all {
		if l.Attrs().Name == n.Name && hardwareMAC(l.Attrs()) == n.MAC {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no interface of this machine is %s with the MAC %s; if the hardware is another one: "+
		"firstlight uninstall --keep-data, then install again", n.Name, n.MAC)
}

// awaitNICs returns when all interfaces are there, which are found one after the other while the machine starts, or
// with an error after the timeout.
func awaitNICs(nics []NIC, timeout time.Duration) error {
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		var missing error
		for _, n := range nics {
			if _, err := findNIC(n); err != nil {
				missing = err
			}
		}
		if missing == nil || time.Since(begun) > timeout {
			return missing
		}
	}
}

// giveBack moves the interfaces that dir says were lent back into the network of this process, as they were. What is
// back already is left alone, and if none was lent there is nothing to do.
func giveBack(dir string) error {
	var lent []lentNIC
	if err := readJSON(filepath.Join(dir, lentFile), &lent); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("give interfaces back: %w", err)
	}

	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("give interfaces back: %w", err)
	}
	defer own.Close()

	network := filepath.Join(dir, networkFile)
	isHeld := isMountPoint(network)
	var errs []error
	for _, n := range lent {
		if isHeld {
			err := netns.Do(network, func() error {
				l, err := netlink.LinkByName(n.Name)
				if errors.As(err, &netlink.LinkNotFoundError{}) || err == nil && !n.isAt(l) {
					return nil // it is back
				}
				if err == nil {
					err = netlink.LinkSetNsFd(l, int(own.Fd()))
				}
				if err != nil {
					return fmt.Errorf("give %s back: %w", n.Name, err)
				}
				return nil
			})
			if err != nil {
				errs = append(errs, err)
				continue // what has its name here may be another one
			}
		}
		errs = append(errs, n.restore())
	}

	// Whatever failed: without its network, an interface that is hardware is moved back by the kernel. Held, it would be
	// lost until the machine restarts, since systemd removes dir with the list.
	if isHeld {
		if err := unix.Unmount(network, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("let go of the network: %w", err))
		}
	}
	_ = os.Remove(network) // it was not made yet, or is gone
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, lentFile))
}

// isMountPoint reports whether a file is that of a network namespace.
func isMountPoint(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}

// restore gives an interface that is back the MAC, the MTU and the state that it had. One that was pulled meanwhile is
// no error, also where another one has its name now.
func (n lentNIC) restore() error {
	l, err := netlink.LinkByName(n.Name)
	if errors.As(err, &netlink.LinkNotFoundError{}) || err == nil && !n.isAt(l) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", n.Name, err)
	}

	a := l.Attrs()
	if a.HardwareAddr.String() != n.MAC {
		mac, err := net.ParseMAC(n.MAC)
		if err == nil {
			err = netlink.LinkSetHardwareAddr(l, mac)
		}
		if err != nil {
			return fmt.Errorf("restore %s: %w", n.Name, err)
		}
	}
	if a.MTU != n.MTU {
		if err := netlink.LinkSetMTU(l, n.MTU); err != nil {
			return fmt.Errorf("restore %s: %w", n.Name, err)
		}
	}

	set := netlink.LinkSetDown
	if n.Up {
		set = netlink.LinkSetUp
	}
	if err := set(l); err != nil {
		return fmt.Errorf("restore %s: %w", n.Name, err)
	}
	return nil
}

// GiveBack is what is left to do when the unit's process has ended, however it ended: the interfaces are moved back and
// the control groups are removed. Only the unit may do that.
func GiveBack() error {
	if err := checkUnit(); err != nil {
		return err
	}
	return giveAllBack()
}

func giveAllBack() error {
	return errors.Join(giveBack(runDir), container.RemoveCgroups(cgroupName()))
}
