package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/mountinfo"
)

// mountInfo lists the mounts that this thread sees (proc_pid_mountinfo(5)).
const mountInfo = "/proc/thread-self/mountinfo"

// findMount is a mount point at path or below it, or "". What is mounted there is not ours to remove: the appliance's own
// mounts are in a namespace of their own.
func findMount(path string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, filepath.Base(path))
	text, err := os.ReadFile(mountInfo)
	if err != nil {
		return "", fmt.Errorf("look for mounts below %s: %w", path, err)
	}

	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		// One that is hidden by another mount is listed, too.
		point := mountinfo.Unescape(fields[4])
		if strings.HasPrefix(point+"/", path+"/") && isMountRoot(point) {
			return point, nil
		}
	}
	return "", nil
}

// isMountRoot reports whether something is mounted at path.
func isMountRoot(path string) bool {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, 0, &s)
	return err == nil && s.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// networkFileSystems are those that systemd takes for such, of the ones that are in use (systemd.mount(5)).
var networkFileSystems = []string{"ceph", "cifs", "gfs2", "glusterfs", "lustre", "nfs", "nfs4", "ocfs2", "smb3", "sshfs"}

// findLateMount is the mount point nearest to dir in the text of fstab(5), at it or above, if systemd mounts it only when
// the network is up; "" otherwise. A unit that is before the network and needs that mount would be a cycle, of which
// systemd leaves out one at boot. The root is mounted before there is a systemd.
func findLateMount(fstab, dir string) (point string) {
	nearest := ""
	for line := range strings.Lines(fstab) {
		fields := strings.Fields(line)
		if len(fields) < 4 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		at := filepath.Clean(mountinfo.Unescape(fields[1]))
		if at == "/" || !strings.HasPrefix(dir+"/", at+"/") || len(at) < len(nearest) {
			continue
		}
		nearest, point = at, ""
		if slices.Contains(networkFileSystems, fields[2]) || slices.Contains(strings.Split(fields[3], ","), "_netdev") {
			point = at
		}
	}
	return point
}
