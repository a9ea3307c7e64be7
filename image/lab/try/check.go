package try

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"firstlight.dev/firstlight/image/lab/container"
)

// What a rack needs to be on: the appliance keeps some 1.5 GiB in memory and writes as much to its DATA.
const (
	leastMemoryMiB = 3 << 10
	leastDiskMiB   = 4 << 10
	leastMoreMiB   = 1 << 10 // of disk, for one that was on before
)

// contents is what of a rack is on the disk already.
type contents struct {
	root bool // where it can be started from
	data bool // it was on before
}

// machine is what matters of the machine that a rack is to run on.
type machine struct {
	container.Host
	programs []string  // that are missing
	user     *ordinary // who runs the rack; nil: root
	has      contents
}

// leastDisk is how much disk a rack needs, besides what it has, in MiB.
func (m machine) leastDisk() int {
	switch {
	case m.has.data:
		return leastMoreMiB
	case m.user != nil && !m.has.root:
		return leastDiskMiB + leastRootMiB
	}
	return leastDiskMiB
}

// refuse says why no rack can be on there, and what to do about it; nil if one can.
func (m machine) refuse() error {
	switch {
	case m.user != nil && m.user.refuse() != nil:
		return m.user.refuse()
	case len(m.Namespaces) > 0:
		return fmt.Errorf("the kernel has no %s namespaces", strings.Join(m.Namespaces, ", no "))
	case !m.Cgroups:
		return errors.New("no control groups are mounted below /sys/fs/cgroup; systemd mounts them at boot")
	case len(m.programs) > 0:
		return fmt.Errorf("%s is not installed; apt-get install iproute2 util-linux coreutils", m.programs[0])
	case m.user == nil && (!m.HasFileSystem("overlay") || !m.HasFileSystem("squashfs")):
		return errors.New("the kernel has no overlay or no squashfs; modprobe -a overlay squashfs loop")
	case m.MemoryMiB < leastMemoryMiB:
		return fmt.Errorf("%d MiB of memory are available, %d are needed; end something else", m.MemoryMiB, leastMemoryMiB)
	case m.DiskMiB < m.leastDisk():
		return fmt.Errorf("%d MiB are free, %d are needed; name another directory with --dir", m.DiskMiB, m.leastDisk())
	}
	return nil
}

// readMachine reads what this machine is, for a rack in dir.
func readMachine(dir string) (machine, error) {
	var m machine
	for _, name := range []string{"ip", "nsenter", "sleep"} {
		if _, err := exec.LookPath(name); err != nil {
			m.programs = append(m.programs, name)
		}
	}

	var err error
	if m.Host, err = container.ReadHost(dir); err != nil || m.Root {
		return m, err
	}

	user, err := readOrdinary()
	m.user = &user
	return m, err
}
