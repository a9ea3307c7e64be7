package try

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/userns"
)

// TestOrdinaryUsersAreRefused: in one line, with what to do.
func TestOrdinaryUsersAreRefused(t *testing.T) {
	fit := func(change func(*ordinary)) machine {
		o := ordinary{name: "walker", uids: userns.LeastIDs, gids: userns.LeastIDs, kernel: [2]int{6, 1}, namespaces: 1}
		change(&o)
		return machine{
			Host: container.Host{Cgroups: true, MemoryMiB: leastMemoryMiB, DiskMiB: leastDiskMiB + leastRootMiB},
			user: &o,
		}
	}
	for _, change := range []func(*ordinary){
		func(*ordinary) {},
		func(o *ordinary) { o.clone = "1" },
		func(o *ordinary) { o.kernel = [2]int{5, 11} },
		func(o *ordinary) { o.cgroups = groups{unified: true, systemd: true} },
	} {
		assert.NoError(t, fit(change).refuse())
	}

	const orSudo = "; or use root: sudo firstlight try"
	for want, change := range map[string]func(*ordinary){
		"newuidmap is not installed, which a rack without root needs; apt-get install uidmap squashfs-tools": func(o *ordinary) {
			o.programs = []string{"newuidmap", "newgidmap"}
		},
		"Linux 5.10 has no overlayfs in user namespaces, 5.11 is the first that has": func(o *ordinary) { o.kernel = [2]int{5, 10} },
		"Linux 4.18 has no overlayfs in user namespaces, 5.11 is the first that has": func(o *ordinary) { o.kernel = [2]int{4, 18} },
		"this machine gives users no user namespaces; as root: sysctl -w user.max_user_namespaces=15000 " +
			"kernel.unprivileged_userns_clone=1": func(o *ordinary) { o.clone = "0" },
		"AppArmor gives programs of users no rights in user namespaces; as root: " +
			"sysctl -w kernel.apparmor_restrict_unprivileged_userns=0": func(o *ordinary) { o.confined = true },
		"walker has 65536 subordinate user IDs and 65535 group IDs, 65536 are needed; as root: usermod " +
			"--add-subuids 100000-165535 --add-subgids 100000-165535 walker": func(o *ordinary) { o.gids-- },
		"/sys/fs/cgroup/cpu, a control group of version 1, is not yours; start this machine with the kernel's parameter " +
			"systemd.unified_cgroup_hierarchy=1": func(o *ordinary) { o.cgroups.foreign = "/sys/fs/cgroup/cpu" },
		"no systemd of yours runs here to give you control groups; log in by SSH or on the console, or as root: " +
			"loginctl enable-linger walker": func(o *ordinary) { o.cgroups.unified = true },
		"your systemd may not use the controllers cpu, pids of control groups; as root: systemctl edit user@.service, there " +
			"[Service] Delegate=cpu cpuset io memory pids; then log in again": func(o *ordinary) {
			o.cgroups = groups{unified: true, systemd: true, missing: missingControllers("cpuset memory\n")}
		},
	} {
		assert.EqualError(t, fit(change).refuse(), want+orSudo)
	}

	narrow := fit(func(*ordinary) {})
	narrow.DiskMiB--
	assert.EqualError(t, narrow.refuse(), "7167 MiB are free, 7168 are needed; name another directory with --dir")
	narrow.DiskMiB, narrow.has.root = leastDiskMiB, true
	assert.NoError(t, narrow.refuse(), "its root is unpacked")
	narrow.DiskMiB, narrow.has.data = leastMoreMiB, true
	assert.NoError(t, narrow.refuse(), "it was on before")
	narrow.DiskMiB--
	assert.EqualError(t, narrow.refuse(), "1023 MiB are free, 1024 are needed; name another directory with --dir")
}

// TestARackThatEndsWithTheLoginIsTold: that of a user whose systemd gives it control groups, and ends with his last
// session.
func TestARackThatEndsWithTheLoginIsTold(t *testing.T) {
	walker := ordinary{name: "walker"}
	assert.Empty(t, walker.endsWithLogin(), "its control groups are those of version 1 that it was started in")
	walker.cgroups = groups{unified: true, systemd: true}
	assert.Equal(t, "It ends when you have logged out; loginctl enable-linger walker keeps it (as root where polkit is "+
		"not installed)", walker.endsWithLogin())
	walker.cgroups.lingers = true
	assert.Empty(t, walker.endsWithLogin())
}

// TestARackThatIsOnIsNotRefused: the memory that is missing is its own, and who interrupted the command watches again.
func TestARackThatIsOnIsNotRefused(t *testing.T) {
	r := Rack{Dir: t.TempDir()}
	self, err := process.Identify(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, writeJSON(r.path(rackFile), rackDoc{Unpacked: true}))
	assert.Equal(t, contents{}, r.readContents())
	require.NoError(t, os.Mkdir(r.path(rootDir), 0o700))
	assert.Equal(t, contents{root: true}, r.readContents())
	require.NoError(t, os.Mkdir(r.path(dataDir), 0o700))
	assert.Equal(t, contents{root: true, data: true}, r.readContents())

	t.Setenv("PATH", "") // no machine without programs is one for a rack
	assert.Error(t, r.CheckMachine())
	require.NoError(t, writeJSON(r.path(runningFile), Processes{Supervisor: self}))
	assert.NoError(t, r.CheckMachine())
}
