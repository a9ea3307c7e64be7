package install

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/verity"
)

// memory is a file in memory.
type memory struct{ bytes []byte }

func (m *memory) ReadAt(b []byte, at int64) (int, error) {
	return bytes.NewReader(m.bytes).ReadAt(b, at)
}

func (m *memory) WriteAt(b []byte, at int64) (int, error) {
	if missing := int(at) + len(b) - len(m.bytes); missing > 0 {
		m.bytes = append(m.bytes, make([]byte, missing)...)
	}
	return copy(m.bytes[at:], b), nil
}

// newRoot is a squashfs that has nothing but a superblock, and its hash tree.
func newRoot(t *testing.T, version string) Root {
	t.Helper()
	const size = 3 * verity.BlockSize
	m := &memory{make([]byte, size)}
	copy(m.bytes, "hsqs")
	binary.LittleEndian.PutUint16(m.bytes[28:], 4)
	binary.LittleEndian.PutUint64(m.bytes[40:], size)
	copy(m.bytes[100:], version)
	salt, uuid := strings.Repeat("ab", 32), "6f1f5d0e-94a1-4c54-9c6a-3b1f52a0c100"
	hash, err := verity.Append(t.Context(), m, size, salt, uuid, verity.Known{})
	require.NoError(t, err)
	return Root{Version: version, Hash: hash, Bytes: int64(len(m.bytes)), content: m}
}

// host is a machine below a directory.
type host struct {
	t       *testing.T
	prefix  string
	active  bool
	cutAt   string // step before which everything ends; "" for none
	program string
	site    *site.Site
	text    []byte
}

// cut is what a power cut panics with.
type cut struct{}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, prefix: t.TempDir(), program: filepath.Join(t.TempDir(), "firstlight")}
	require.NoError(t, os.WriteFile(h.program, []byte("program"), 0o755))
	for _, dir := range []string{"/etc/systemd/system/multi-user.target.wants", "/usr/local/bin", "/var/lib"} {
		require.NoError(t, os.MkdirAll(h.prefix+dir, 0o755))
	}
	h.text = []byte("networks:\n  provisioning: {interface: eno2}\n")
	h.site = readSite(t, string(h.text))
	return h
}

// systemctl is what systemctl does that matters here.
func (h *host) systemctl(args ...string) error {
	name := args[len(args)-1]
	if name != "daemon-reload" && args[0] != "is-active" && !exists(h.prefix+unitPath) {
		return fmt.Errorf("Unit %s not loaded", name)
	}
	switch args[0] {
	case "is-active":
		if !h.active {
			return fmt.Errorf("inactive")
		}
	case "enable":
		if !exists(h.prefix + wantsPath) {
			return os.Symlink(unitPath, h.prefix+wantsPath)
		}
	case "disable":
		return os.RemoveAll(h.prefix + wantsPath)
	case "start", "stop":
		h.active = args[0] == "start"
	case "restart": // as the unit does
		h.boots()
	}
	return nil
}

func (h *host) installation() Installation {
	return Installation{Prefix: h.prefix, Systemctl: h.systemctl, Report: func(text string) {
		if h.cutAt != "" && strings.HasPrefix(text, h.cutAt) {
			panic(cut{})
		}
	}}
}

// decide is what would be done on the machine as it is.
func (h *host) decide(root Root) Decision {
	h.t.Helper()
	m := sound()
	m.InDir, m.Unit = h.installation().findForeign(), exists(h.prefix+unitPath)
	d, err := h.installation().Decide(h.t.Context(), m, h.site, Order{Root: root, Site: h.text, Program: h.program})
	require.NoError(h.t, err)
	return d
}

// until does something until it is done or the power fails before a step.
func (h *host) until(step string, do func() error) {
	h.t.Helper()
	h.cutAt = step
	defer func() {
		h.cutAt = ""
		switch r := recover(); {
		case step != "":
			require.Equal(h.t, cut{}, r, "it was not cut before: %s", step)
		case r != nil:
			panic(r)
		}
	}()
	require.NoError(h.t, do())
}

func (h *host) install(root Root) {
	h.t.Helper()
	d := h.decide(root)
	require.Empty(h.t, d.Refusals)
	require.NoError(h.t, h.installation().Install(h.t.Context(), d))
	require.True(h.t, h.active)
	assert.Empty(h.t, h.decide(root).Steps, "all steps hold")
}

// files is all that is there: names, modes and contents.
func (h *host) files() (all []string) {
	h.t.Helper()
	require.NoError(h.t, filepath.WalkDir(h.prefix, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = digest(content)
		}
		all = append(all, fmt.Sprintln(path, info.Mode(), text))
		return nil
	}))
	return all
}

// TestAPowerCutAtAnyStep of an installation or an uninstallation: either may be run next, and does what is left.
func TestAPowerCutAtAnyStep(t *testing.T) {
	root := newRoot(t, "1")
	h := newHost(t)
	before := h.files()
	uninstall := func() error { return h.installation().Uninstall(false) }
	toInstall := h.decide(root).Steps
	require.Len(t, toInstall, 6)

	for _, step := range toInstall {
		install := func() error { return h.installation().Install(t.Context(), h.decide(root)) }
		h.until(step, install)
		h.until("", func() error {
			if err := uninstall(); err != nil && err != ErrNone {
				return err
			}
			return nil
		})
		assert.Equal(t, before, h.files(), "uninstalled after a cut before: %s", step)

		h.until(step, install)
		h.install(root)
		toUninstall, err := h.installation().Removals(false)
		require.NoError(t, err)
		for _, step := range slices.Concat(toUninstall, []string{""}) {
			h.until(step, uninstall)
		}
		assert.Equal(t, before, h.files())
		assert.False(t, h.active)
	}

	for _, step := range []string{"stop", "remove " + unitPath, "remove " + Dir + "/" + rootName, "remove " + ProgramPath} {
		h.install(root)
		h.until(step, uninstall)
		h.install(root)
		require.NoError(t, uninstall())
		assert.Equal(t, before, h.files(), "installed after a cut before: %s", step)
	}
}

// TestDataIsKept by an uninstallation that is asked to, for another version.
func TestDataIsKept(t *testing.T) {
	h := newHost(t)
	before := h.files()
	h.install(newRoot(t, "1"))
	thesis := h.prefix + Dir + "/" + dataDir + "/thesis"
	require.NoError(t, os.MkdirAll(filepath.Dir(thesis), 0o755))
	require.NoError(t, os.WriteFile(thesis, []byte("kept"), 0o644))

	require.NoError(t, h.installation().Uninstall(true))
	_, err := h.installation().Receipt()
	require.ErrorIs(t, err, ErrNone)

	h.text = []byte("# another\n" + string(h.text))
	h.install(newRoot(t, "2"))
	assert.FileExists(t, thesis)
	text, err := os.ReadFile(h.prefix + SiteFile)
	require.NoError(t, err)
	assert.Equal(t, h.text, text)

	require.NoError(t, h.installation().Uninstall(true))
	require.NoError(t, h.installation().Uninstall(false))
	assert.Equal(t, before, h.files())
}

// TestTheOwnersFilesStay: a program that was there, and an edited site.
func TestTheOwnersFilesStay(t *testing.T) {
	h := newHost(t)
	require.NoError(t, copyFile(h.program, h.prefix+ProgramPath, 0o755))
	before := h.files()
	root := newRoot(t, "1")
	h.install(root)
	edited := append([]byte("# edited\n"), h.text...)
	require.NoError(t, os.WriteFile(h.prefix+SiteFile, edited, 0o600))
	h.install(root)
	text, err := os.ReadFile(h.prefix + SiteFile)
	require.NoError(t, err)
	assert.Equal(t, edited, text)

	h.text = append([]byte("# another\n"), h.text...)
	assert.Contains(t, strings.Join(h.decide(root).Refusals, "\n"), "another site.yaml is installed already")
	require.NoError(t, h.installation().Uninstall(false))
	assert.Equal(t, before, h.files())
	assert.ErrorIs(t, h.installation().Uninstall(false), ErrNone)
}

// TestAnInstallationIsContinuedAsItIs: without a site it keeps the one that it has, and a program that was there before
// it is not replaced.
func TestAnInstallationIsContinuedAsItIs(t *testing.T) {
	h := newHost(t)
	require.NoError(t, copyFile(h.program, h.prefix+ProgramPath, 0o755))
	root, text := newRoot(t, "1"), h.text
	h.until("write the unit", func() error { return h.installation().Install(t.Context(), h.decide(root)) })
	h.text = nil // firstlight install without --site
	h.install(root)
	have, err := os.ReadFile(h.prefix + SiteFile)
	require.NoError(t, err)
	assert.Equal(t, string(text), string(have))

	m := sound()
	m.OtherProgram = true
	d, err := h.installation().Decide(t.Context(), m, h.site, Order{Root: root, Program: h.program})
	require.NoError(t, err)
	assert.Contains(t, strings.Join(d.Refusals, "\n"), ProgramPath+", which was there before the appliance, is another "+
		"version or another program; replace it by this one")
}

// TestADamagedRootIsNotInstalled, and one that was damaged since is copied again.
func TestADamagedRootIsNotInstalled(t *testing.T) {
	h := newHost(t)
	root := newRoot(t, "1")
	h.install(root)
	require.NoError(t, os.WriteFile(h.prefix+Dir+"/"+rootName, []byte("hsqs"), 0o600))
	assert.Len(t, h.decide(root).Steps, 1)
	h.install(root)
	require.NoError(t, h.installation().Uninstall(false))

	root.content.(*memory).bytes[5000] ^= 1
	err := h.installation().Install(t.Context(), h.decide(root))
	assert.ErrorContains(t, err, "the image is not sound")
	assert.ErrorContains(t, err, "1 blocks differ from the root hash")
	assert.NoFileExists(t, h.prefix+Dir+"/"+rootName)
	assert.NoFileExists(t, h.prefix+unitPath)
}

// TestADamagedReceiptIsUninstalled: all but the program, which may have been there before.
func TestADamagedReceiptIsUninstalled(t *testing.T) {
	h := newHost(t)
	before := h.files()
	h.install(newRoot(t, "1"))
	require.NoError(t, os.WriteFile(h.prefix+Dir+"/"+receiptName, []byte(`{"ownProgram": true, "nics": [`), 0o600))
	_, err := h.installation().Decide(t.Context(), sound(), h.site, Order{Root: newRoot(t, "1"), Site: h.text, Program: h.program})
	assert.ErrorContains(t, err, "it is damaged; firstlight uninstall --keep-data, then install again")

	require.NoError(t, h.installation().Uninstall(true))
	assert.False(t, h.active)
	assert.DirExists(t, h.prefix+Dir+"/"+siteDir)
	h.install(newRoot(t, "1"))
	require.NoError(t, h.installation().Uninstall(false))
	require.NoError(t, os.Remove(h.prefix+ProgramPath))
	assert.Equal(t, before, h.files())
}
