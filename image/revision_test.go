package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
)

// commit makes a repository with one commit, whatever this machine's own git is configured to do.
func commit(t *testing.T, top string) {
	t.Helper()
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"commit", "--quiet", "--message=x"}} {
		run(t, top, []string{
			"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
			"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a",
			"GIT_COMMITTER_DATE=2026-11-26T07:00:00+02:00",
		}, "git", append([]string{"-C", top}, args...)...)
	}
}

func TestTheRevisionIsGits(t *testing.T) {
	top := t.TempDir()
	read := func(dir string) assets.Revision {
		r, err := ReadRevision(t.Context(), dir)
		require.NoError(t, err)
		return r
	}
	require.NoError(t, os.WriteFile(filepath.Join(top, "a"), nil, 0o644))
	assert.Zero(t, read(top), "no repository")

	commit(t, top)
	first := read(top)
	assert.Regexp(t, `^[0-9a-f]{40}$`, first.Commit)
	assert.Equal(t, time.Date(2026, 11, 26, 5, 0, 0, 0, time.UTC), first.Time)
	assert.False(t, first.IsDirty || first.IsReleased)

	run(t, top, nil, "git", "-C", top, "tag", assets.ReleaseTag)
	assert.Equal(t, assets.Version, read(top).Version())

	inside := filepath.Join(top, "inside")
	require.NoError(t, os.Mkdir(inside, 0o755))
	assert.Zero(t, read(inside), "a directory of another project's repository")

	require.NoError(t, os.WriteFile(filepath.Join(inside, "new"), nil, 0o644))
	assert.True(t, read(top).IsDirty, "a file that git does not know")
}
