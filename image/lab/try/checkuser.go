package try

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/userns"
)

// leastRootMiB is what the unpacked root of an image needs besides leastDiskMiB.
const leastRootMiB = 3 << 10

// ordinary is what matters of an ordinary user who runs a rack, and of the machine for him.
type ordinary struct {
	name       string
	programs   []string // that are missing
	uids, gids int      // subordinate IDs that he was given
	kernel     [2]int   // version
	namespaces int      // user namespaces that he may have
	clone      string   // kernel.unprivileged_userns_clone, of Debian's kernels; "": there is none
	confined   bool     // AppArmor gives his programs no rights in user namespaces
	cgroups    groups
}

// groups are the control groups of an ordinary user.
type groups struct {
	foreign string   // directory of a tree of version 1 in which he may not make groups; "": none
	unified bool     // version 2 is the only one
	systemd bool     // he has one, with version 2
	lingers bool     // which runs also while he is not logged in
	missing []string // controllers that it may not hand to him
}

// neededControllers are those of version 2 that a kubelet does not do without.
var neededControllers = []string{"cpu", "memory", "pids"}

// refuse says why an ordinary user can have no rack there, and what to do about it; nil if he can.
func (o ordinary) refuse() error {
	const orSudo = "; or use root: sudo firstlight try"
	switch {
	case len(o.programs) > 0:
		return fmt.Errorf("%s is not installed, which a rack without root needs; apt-get install uidmap squashfs-tools%s",
			o.programs[0], orSudo)
	case o.kernel[0] < 5 || o.kernel[0] == 5 && o.kernel[1] < 11:
		return fmt.Errorf("Linux %d.%d has no overlayfs in user namespaces, 5.11 is the first that has%s", o.kernel[0],
			o.kernel[1], orSudo)
	case o.namespaces == 0 || o.clone == "0":
		return errors.New("this machine gives users no user namespaces; as root: sysctl -w user.max_user_namespaces=15000 " +
			"kernel.unprivileged_userns_clone=1" + orSudo)
	case o.confined:
		return errors.New("AppArmor gives programs of users no rights in user namespaces; as root: " +
			"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" + orSudo)
	case o.uids < userns.LeastIDs || o.gids < userns.LeastIDs:
		return fmt.Errorf("%s has %d subordinate user IDs and %d group IDs, %d are needed; as root: usermod "+
			"--add-subuids 100000-165535 --add-subgids 100000-165535 %s%s", o.name, o.uids, o.gids, userns.LeastIDs, o.name,
			orSudo)
	}
	return o.cgroups.refuse(o.name, orSudo)
}

func (g groups) refuse(name, orSudo string) error {
	switch {
	case !g.unified && g.foreign != "":
		return fmt.Errorf("%s, a control group of version 1, is not yours; start this machine with the kernel's parameter "+
			"systemd.unified_cgroup_hierarchy=1%s", g.foreign, orSudo)
	case g.unified && !g.systemd:
		return fmt.Errorf("no systemd of yours runs here to give you control groups; log in by SSH or on the console, or as "+
			"root: loginctl enable-linger %s%s", name, orSudo)
	case len(g.missing) > 0:
		return fmt.Errorf("your systemd may not use the controllers %s of control groups; as root: systemctl edit "+
			"user@.service, there [Service] Delegate=cpu cpuset io memory pids; then log in again%s",
			strings.Join(g.missing, ", "), orSudo)
	}
	return nil
}

// EndsWithLogin says in one line that a rack of this user ends before he ends it, and how to keep it; "" if it does not.
func EndsWithLogin() (string, error) {
	if os.Geteuid() == 0 {
		return "", nil
	}
	o, err := readOrdinary()
	return o.endsWithLogin(), err
}

// endsWithLogin is of EndsWithLogin: the user's systemd ends with his last session, and the control groups of a rack are
// that one's where version 2 is the only one.
func (o ordinary) endsWithLogin() string {
	if !o.cgroups.unified || o.cgroups.lingers {
		return ""
	}
	return "It ends when you have logged out; loginctl enable-linger " + o.name +
		" keeps it (as root where polkit is not installed)"
}

// lingerDir has a file for each user whose systemd runs also while he is not logged in (loginctl(1), enable-linger).
const lingerDir = "/var/lib/systemd/linger"

// readOrdinary reads what this user may on this machine.
func readOrdinary() (ordinary, error) {
	o := ordinary{name: strconv.Itoa(os.Geteuid())}
	if u, err := user.Current(); err == nil {
		o.name = u.Username
	}
	for _, program := range []string{"newuidmap", "newgidmap", "unsquashfs"} {
		if _, err := exec.LookPath(program); err != nil {
			o.programs = append(o.programs, program)
		}
	}

	uids, gids, err := userns.ReadRanges()
	if err != nil {
		return o, err
	}
	o.uids, o.gids = userns.Amount(uids), userns.Amount(gids)

	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return o, fmt.Errorf("read version of the kernel: %w", err)
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &o.kernel[0], &o.kernel[1]); err != nil {
		return o, fmt.Errorf("read version of the kernel: %w", err)
	}

	o.namespaces, _ = strconv.Atoi(readParameter("user/max_user_namespaces"))
	o.clone = readParameter("kernel/unprivileged_userns_clone")
	if readParameter("kernel/apparmor_restrict_unprivileged_userns") == "1" {
		profile, _ := os.ReadFile("/proc/self/attr/current") // a profile of its own gives a program the rights
		o.confined = strings.TrimSpace(string(profile)) == "unconfined"
	}

	if o.cgroups, err = readGroups(); err != nil {
		return o, err
	}
	_, err = os.Stat(filepath.Join(lingerDir, o.name))
	o.cgroups.lingers = err == nil
	return o, nil
}

// readParameter is a parameter of the kernel, "" if it has none of that name.
func readParameter(name string) string {
	text, _ := os.ReadFile("/proc/sys/" + name)
	return strings.TrimSpace(string(text))
}

// readGroups reads which control groups this user may make.
func readGroups() (groups, error) {
	own, isOnlyUnified, err := container.OwnCgroups()
	if err != nil || !isOnlyUnified {
		return groups{foreign: container.FirstForeignCgroup(own)}, err
	}

	id := strconv.Itoa(os.Geteuid())
	slice := container.CgroupRoot + "/user.slice/user-" + id + ".slice/user@" + id + ".service"
	text, err := os.ReadFile(slice + "/cgroup.controllers")
	g := groups{unified: true, systemd: err == nil}
	if g.systemd {
		g.missing = missingControllers(string(text))
	}
	if _, err := exec.LookPath("systemd-run"); err != nil {
		g.systemd = false
	}
	return g, nil
}

// missingControllers are those that a line of cgroup.controllers lacks.
func missingControllers(line string) []string {
	var missing []string
	for _, c := range neededControllers {
		if !slices.Contains(strings.Fields(line), c) {
			missing = append(missing, c)
		}
	}
	return missing
}
