package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTreesOfControlGroupsAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		mountinfo string
		want      hierarchies
	}{
		"version 2": {
			"29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
			hierarchies{v1: map[string]string{}, unified: "/sys/fs/cgroup"},
		},
		"both": {
			"30 23 0:27 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n" +
				"31 30 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
				"32 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n" +
				"33 30 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
			hierarchies{
				v1:      map[string]string{"/sys/fs/cgroup/systemd": "name=systemd", "/sys/fs/cgroup/cpu": "cpu"},
				unified: "/sys/fs/cgroup/unified",
			},
		},
		"none": {"23 1 254:0 / / rw - ext4 /dev/vda rw\nnonsense\n", hierarchies{v1: map[string]string{}}},
	} {
		got, err := parseHierarchies(strings.NewReader(c.mountinfo))
		require.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
}

func TestRootTreesAreFound(t *testing.T) {
	dir := t.TempDir()
	path, offset, err := FindRoot(dir)
	require.NoError(t, err)
	assert.Equal(t, dir, path)
	assert.Zero(t, offset)

	file := filepath.Join(dir, "root.squashfs")
	require.NoError(t, os.WriteFile(file, []byte("hsqs and more"), 0o644))
	path, _, err = FindRoot(file)
	require.NoError(t, err)
	assert.Equal(t, file, path)

	require.NoError(t, os.WriteFile(file, []byte("something else"), 0o644))
	_, _, err = FindRoot(file)
	assert.ErrorContains(t, err, "find root tree in "+file)
	_, _, err = FindRoot(filepath.Join(dir, "absent"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestOwnGroupsAreRead(t *testing.T) {
	const both = "9:name=systemd:/\n8:pids:/a\n2:cpu,cpuacct:/b/c\n5:net_cls:/\n0::/d\n"
	mixed := hierarchies{unified: "/c/unified", v1: map[string]string{
		"/c/systemd": "xattr,name=systemd", "/c/pids": "pids", "/c/cpu,cpuacct": "cpu,cpuacct",
	}}
	assert.Equal(t, []string{"/c/cpu,cpuacct/b/c", "/c/pids/a", "/c/systemd"}, mixed.ownDirs(both))
	assert.Equal(t, []string{"/c/user.slice/x"}, hierarchies{unified: "/c"}.ownDirs("0::/user.slice/x\n"))
	assert.Empty(t, hierarchies{}.ownDirs(both))
}

// TestAForeignGroupIsFound: one that may not be written to.
func TestAForeignGroupIsFound(t *testing.T) {
	own := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(own, "cgroup.procs"), nil, 0o600))
	bare := t.TempDir()
	assert.Empty(t, FirstForeignCgroup([]string{own}))
	assert.Equal(t, bare, FirstForeignCgroup([]string{own, bare}))

	require.NoError(t, os.Mkdir(filepath.Join(own, "rack"), 0o755))
	assert.Equal(t, []string{filepath.Join(own, "rack")}, FindCgroups("rack", own, bare))
}
