package release_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/image/release"
)

const changelog = `# Changelog

## [Unreleased]

### Added

- What comes.

## [` + assets.Version + `] - 2026-12-01

- What is there.
`

// built is a release of an image that was built before, in directories of its own.
func built(t *testing.T, revision assets.Revision) *release.Release {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"firstlight.img.zst":   "compressed",
		"firstlight.img.bmap":  "map",
		"firstlight.spdx.json": `{"packages": [{"versionInfo": "` + revision.Version() + `"}, {"versionInfo": "1"}]}`,
		"CHANGELOG.md":         changelog,
		"recipe.lock":          "locked\n",
	}
	var sums strings.Builder
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(text)), name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644))
	return &release.Release{
		Revision:  revision,
		Image:     filepath.Join(dir, "firstlight.img"),
		Lock:      filepath.Join(dir, "recipe.lock"),
		Changelog: filepath.Join(dir, "CHANGELOG.md"),
		Out:       filepath.Join(t.TempDir(), "release"),
		Command: []release.File{
			{Debian: "usr/bin/firstlight", Archive: "firstlight", Mode: 0o755, Content: []byte("#!/bin/sh\n")},
			{Debian: "usr/share/doc/firstlight/copyright", Archive: "LICENSE", Mode: 0o644, Content: []byte("licence\n")},
			{Archive: "completions/_firstlight", Mode: 0o644, Content: []byte("complete\n")},
		},
	}
}

func revision() assets.Revision {
	return assets.Revision{Commit: strings.Repeat("0123456789", 4), Time: time.Date(2026, 11, 26, 5, 50, 0, 0, time.UTC)}
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, path))
		all[path] = string(text)
		return err
	}))
	return all
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, text)
	return string(text)
}

func TestARelease(t *testing.T) {
	r := built(t, revision())
	result, err := r.Write(t.Context())
	require.NoError(t, err)
	version := assets.Version + "-dev+012345678901"
	deb := "firstlight_" + assets.Version + "~dev20261126055000+012345678901_amd64.deb"
	archive := "firstlight-" + version + "-linux-amd64.tar.gz"
	assert.Equal(t, filepath.Join(r.Out, version), result.Dir)
	assert.Equal(t, []string{
		"firstlight-" + version + ".img.zst",
		"firstlight-" + version + ".img.bmap",
		"firstlight-" + version + ".spdx.json",
		deb,
		archive,
		"firstlight-" + version + ".tar",
		release.NotesName,
	}, result.Files)
	assert.Empty(t, result.Signature)

	got := contents(t, result.Dir)
	assert.Len(t, got, len(result.Files)+1, "and SHA256SUMS")
	assert.Equal(t, "compressed", got[result.Files[0]])
	notes := "# Firstlight " + version + "\n\nCommit " + revision().Commit + " of 2026-11-26.\n\n### Added\n\n- What comes.\n"
	assert.Equal(t, notes, got[release.NotesName])
	checked := output(t, result.Dir, "sha256sum", "--strict", "--check", "SHA256SUMS")
	assert.Equal(t, len(result.Files), strings.Count(checked, ": OK\n"))

	control := output(t, result.Dir, "dpkg-deb", "--field", deb)
	assert.Contains(t, control, "Version: "+assets.Version+"~dev20261126055000+012345678901\n")
	listed := output(t, result.Dir, "dpkg-deb", "--contents", deb)
	assert.Regexp(t, `(?m)^-rwxr-xr-x root/root +10 2026-11-26 .* \./usr/bin/firstlight$`, listed)
	assert.Regexp(t, `(?m)^-rw-r--r-- root/root +8 .* \./usr/share/doc/firstlight/copyright$`, listed)
	assert.NotContains(t, listed, "_firstlight", "what is for the archive alone")

	listed = output(t, result.Dir, "tar", "--utc", "-tvzf", archive)
	assert.Regexp(t, `(?m)^-rwxr-xr-x 0/0 +10 2026-11-26 05:50 firstlight-\S+/firstlight$`, listed)
	assert.Regexp(t, `(?m)/completions/_firstlight$`, listed)
}

// TestOneFileIsEnoughForAnInstallation: command, image, what is in it and what it was built of, with their digests.
func TestOneFileIsEnoughForAnInstallation(t *testing.T) {
	result, err := built(t, revision()).Write(t.Context())
	require.NoError(t, err)
	base := "firstlight-" + revision().Version()
	listed := output(t, result.Dir, "tar", "--utc", "-tvf", base+".tar")
	assert.Regexp(t, `(?m)^-rwxr-xr-x 0/0 +10 2026-11-26 05:50 `+regexp.QuoteMeta(base)+`/firstlight$`, listed)

	dir := t.TempDir()
	output(t, dir, "tar", "-xf", filepath.Join(result.Dir, base+".tar"))
	in := filepath.Join(dir, base)
	checked := output(t, in, "sha256sum", "--strict", "--check", "SHA256SUMS")
	got := contents(t, in)
	assert.Equal(t, len(got)-1, strings.Count(checked, ": OK\n"))
	assert.Equal(t, "compressed", got["firstlight.img.zst"])
	assert.Equal(t, "locked\n", got[release.LockName])
	assert.Contains(t, got["firstlight.spdx.json"], "packages")
	assert.Contains(t, got, "LICENSE")
}

// TestTheSameCommitGivesTheSameBytes: at another time, under another umask, over what was there.
func TestTheSameCommitGivesTheSameBytes(t *testing.T) {
	first, err := built(t, revision()).Write(t.Context())
	require.NoError(t, err)
	r := built(t, revision())
	stale := filepath.Join(r.Out, revision().Version(), "stale")
	require.NoError(t, os.MkdirAll(filepath.Dir(stale), 0o755))
	require.NoError(t, os.WriteFile(stale, nil, 0o644))
	time.Sleep(1100 * time.Millisecond) // archives know whole seconds
	second, err := r.Write(t.Context())
	require.NoError(t, err)
	assert.Equal(t, contents(t, first.Dir), contents(t, second.Dir))
}

func TestATagIsAReleaseOfItsOwnNotes(t *testing.T) {
	at := revision()
	at.IsReleased = true
	result, err := built(t, at).Write(t.Context())
	require.NoError(t, err)
	assert.Equal(t, assets.Version, filepath.Base(result.Dir))
	got := contents(t, result.Dir)
	assert.Contains(t, got, "firstlight_"+assets.Version+"_amd64.deb")
	assert.Contains(t, got[release.NotesName], "- What is there.")
	assert.NotContains(t, got[release.NotesName], "- What comes.")
}

func TestASignatureIsWhatTheCommandLeaves(t *testing.T) {
	r := built(t, revision())
	r.Sign = "f() { sha256sum $1 > $1.sig; }; f"
	result, err := r.Write(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "SHA256SUMS.sig", result.Signature)
	output(t, result.Dir, "sha256sum", "--check", "SHA256SUMS.sig")

	for command, want := range map[string]string{
		"false": "exit status 1",
		"true":  "it left 0 files SHA256SUMS.* and not one",
	} {
		r := built(t, revision())
		r.Sign = command
		_, err := r.Write(t.Context())
		assert.ErrorContains(t, err, want)
		assert.NoDirExists(t, filepath.Join(r.Out, revision().Version()))
	}
}

func TestWhatIsNotReleased(t *testing.T) {
	write := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o644)) }
	for _, c := range []struct {
		want   string
		change func(*release.Release)
	}{
		{"in no git repository", func(r *release.Release) { r.Revision = assets.Revision{} }},
		{"files differ from the commit", func(r *release.Release) { r.Revision.IsDirty = true }},
		{"the image is " + revision().Version() + ", the sources are " + assets.Version + "; build it first",
			func(r *release.Release) { r.Revision.IsReleased = true }},
		{"a site document with passwords is inside",
			func(r *release.Release) { require.NoError(t, os.Chmod(r.Image+".zst", 0o600)) }},
		{"firstlight.img.bmap: it has sha256", func(r *release.Release) { write(r.Image+".bmap", "other") }},
		{"no such file or directory; build it first",
			func(r *release.Release) {
				require.NoError(t, os.Remove(filepath.Join(filepath.Dir(r.Image), "SHA256SUMS")))
			}},
		{"there is nothing under ## [Unreleased]",
			func(r *release.Release) {
				write(r.Changelog, "# Changelog\n\n## [Unreleased]\n\n## [0.0.1]\n\n- Old.\n")
			}},
	} {
		r := built(t, revision())
		c.change(r)
		_, err := r.Write(t.Context())
		assert.ErrorContains(t, err, c.want)
		left, _ := os.ReadDir(r.Out) // not there in the first two
		assert.Empty(t, left, c.want)
	}
}
