package packages

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// reopen is the key of a repository as a daemon reads it that has just started.
func reopen(t *testing.T, r *Repository) *Key {
	t.Helper()
	k, err := OpenKey(r.Key.file)
	require.NoError(t, err)
	r.Key = k
	return k
}

// published writes the index, and returns it with its signature.
func published(t *testing.T, r *Repository) []byte {
	t.Helper()
	_, err := r.Write(t.Context())
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(r.Dir, "dists", Suite, "InRelease"))
	require.NoError(t, err)
	return text
}

func stageOf(k *Key) ca.Stage {
	stage, _ := k.Stage()
	return stage
}

// TestAptNoticesNoRotation: the apt of this machine reads the repository at every stage, by what a node trusts before it is
// told of the stage, and after. Who was not told of the next key is refused when that signs.
func TestAptNoticesNoRotation(t *testing.T) {
	r, served := repository(t)
	node, forgotten := newClient(t, served), newClient(t, served)
	old := r.Key.Public()
	follow := func(before []byte, stage ca.Stage) (now []byte) {
		t.Helper()
		assert.Equal(t, stage, stageOf(reopen(t, r)))
		published(t, r)
		for _, trusted := range [][]byte{before, r.Key.Public()} {
			text := node.update(trusted)
			assert.NotContains(t, text, "W:", "apt complains in the stage %q", stage)
			assert.NotContains(t, text, "Err:", "apt complains in the stage %q", stage)
		}
		return r.Key.Public()
	}
	follow(old, "")
	require.NoError(t, r.Key.BeginRotation())
	both := follow(old, ca.Introduced)
	assert.NotContains(t, forgotten.update(old), "W:")
	first := published(t, r)

	require.NoError(t, r.Key.Switch())
	follow(both, ca.Switched)
	text := forgotten.update(old)
	assert.Contains(t, text, "NO_PUBKEY", "the next key signs nothing")
	signed := published(t, r)
	assert.NotEqual(t, first, signed)
	before, ok := r.Key.open(first)
	require.True(t, ok, "the former key is not known while it is trusted")
	after, ok := r.Key.open(signed)
	require.True(t, ok)
	assert.True(t, dateOf(after).After(dateOf(before)), "apt keeps the index that it has")

	require.NoError(t, r.Key.ForgetFormer())
	now := follow(both, "")
	assert.Equal(t, signed, published(t, r), "it was signed again for nothing")
	assert.Equal(t, 1, len(r.Key.trustedKeys()))
	assert.NotEqual(t, old, now)
	files, err := filepath.Glob(r.Key.file + "*")
	require.NoError(t, err)
	assert.Len(t, files, 1, "something is left")
}

func TestARotationOfTheKeyHasAnOrder(t *testing.T) {
	r, _ := repository(t)
	require.ErrorContains(t, r.Key.Switch(), "no next key")
	require.NoError(t, r.Key.BeginRotation())
	next := reopen(t, r).Next()
	require.ErrorIs(t, r.Key.BeginRotation(), ErrRotating)
	require.ErrorIs(t, r.Key.ForgetFormer(), ErrRotating)
	require.NoError(t, r.Key.Switch())
	assert.Equal(t, next, reopen(t, r).Current())
	assert.Nil(t, r.Key.Next())
	require.ErrorIs(t, r.Key.BeginRotation(), ErrRotating)
	former, _, err := readEntity(r.Key.file + formerSuffix)
	require.NoError(t, err)
	assert.Nil(t, former.PrivateKey, "the former key can still sign")
	require.NoError(t, r.Key.ForgetFormer())
	require.NoError(t, reopen(t, r).BeginRotation(), "another cannot begin")
}

// TestThePowerFailsWhileTheKeyOfPackagesIsReplaced between any two files that are written or removed. Then it is gone on
// with, and nobody who was told to trust both refuses what is served, neither before nor after.
func TestThePowerFailsWhileTheKeyOfPackagesIsReplaced(t *testing.T) {
	r, served := repository(t)
	dir := filepath.Dir(r.Key.file)
	files := func() map[string][]byte {
		all := map[string][]byte{}
		for _, suffix := range []string{"", nextSuffix, formerSuffix} {
			if text, err := os.ReadFile(r.Key.file + suffix); err == nil {
				all[suffix] = text
			}
		}
		return all
	}
	require.NoError(t, r.Key.BeginRotation())
	both := reopen(t, r).Public()
	before := published(t, r)
	introduced := files()
	require.NoError(t, r.Key.Switch())
	after := reopen(t, r)
	resigned := published(t, r)
	switched := files()

	with := func(files map[string][]byte, suffixes ...string) map[string][]byte {
		all := map[string][]byte{}
		maps.Copy(all, files)
		for _, s := range suffixes {
			all[s] = switched[s]
		}
		return all
	}
	next := func(files map[string][]byte) map[string][]byte {
		all := maps.Clone(files)
		all[nextSuffix] = introduced[nextSuffix]
		return all
	}
	for name, c := range map[string]struct {
		files   map[string][]byte
		release []byte // that is served when the daemon starts
		stage   ca.Stage
	}{
		"introduced":                       {introduced, before, ca.Introduced},
		"the former is written":            {with(introduced, formerSuffix), before, ca.Introduced},
		"the next one signs":               {next(switched), before, ca.Switched},
		"switched, and nothing is signed":  {switched, before, ca.Switched},
		"switched, and all is signed":      {switched, resigned, ca.Switched},
		"the former is forgotten":          {with(nil, ""), resigned, ""},
		"an away copy with the next alone": {next(with(nil, "")), resigned, ""},
		"an away copy without the next":    {map[string][]byte{"": introduced[""], formerSuffix: switched[formerSuffix]}, before, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.Mkdir(dir, 0o700))
			for suffix, text := range c.files {
				require.NoError(t, os.WriteFile(r.Key.file+suffix, text, 0o600))
			}
			release := filepath.Join(served, "dists", Suite, "InRelease")
			require.NoError(t, os.WriteFile(release, c.release, 0o644))
			k := reopen(t, r)
			assert.Equal(t, c.stage, stageOf(k))

			for stage := c.stage; ; stage = stageOf(reopen(t, r)) {
				_, taken := after.open(published(t, r))
				assert.True(t, taken, "%q: who trusts both refuses", stage)
				_, own := r.Key.open(published(t, r))
				assert.True(t, own, "%q: who was told now refuses", stage)
				switch stage {
				case ca.Introduced:
					assert.Equal(t, both, r.Key.Public())
					require.NoError(t, r.Key.Switch())
					continue
				case ca.Switched:
					assert.Len(t, r.Key.trustedKeys(), 2)
					require.NoError(t, r.Key.ForgetFormer())
					continue
				}
				break
			}
			assert.Len(t, r.Key.trustedKeys(), 1)
			require.NoError(t, r.Key.BeginRotation())
			assert.Equal(t, ca.Introduced, stageOf(reopen(t, r)))
		})
	}
}

func TestAKeyThatIsTornIsNamed(t *testing.T) {
	for _, suffix := range []string{nextSuffix, formerSuffix} {
		r, _ := repository(t)
		require.NoError(t, os.WriteFile(r.Key.file+suffix, []byte("torn"), 0o600))
		_, err := OpenKey(r.Key.file)
		assert.ErrorContains(t, err, suffix+" holds no key")
	}
}

// TestWhoWasToldOfAKey: as cloud-init is told, the lines of a file are indented, and others precede them.
func TestWhoWasToldOfAKey(t *testing.T) {
	r, _ := repository(t)
	current := r.Key.Current()
	require.NoError(t, r.Key.BeginRotation())
	k := reopen(t, r)
	cloud := func(key []byte) []byte {
		const certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
		text := "cat >ca.crt <<'END'\n" + certificate + "END\ncat >packages.asc <<'END'\n" + string(key) + "END\n"
		return []byte("write_files:\n- content: |\n    " + strings.ReplaceAll(text, "\n", "\n    "))
	}
	for _, c := range []struct {
		text    []byte
		current bool
		next    bool
	}{
		{cloud(current), true, false},
		{cloud(k.Public()), true, true},
		{cloud(k.Next()), false, true},
		{bytes.Join([][]byte{cloud(current), cloud(k.Next())}, nil), true, true},
		{[]byte("#cloud-config\n"), false, false},
		{cloud(current[:len(current)/2]), false, false},
	} {
		assert.Equal(t, c.current, HasKey(c.text, current), "%s", c.text)
		assert.Equal(t, c.next, HasKey(c.text, k.Next()), "%s", c.text)
	}
	assert.False(t, HasKey(cloud(current), nil))
	_, since := k.Stage()
	assert.WithinDuration(t, time.Now(), since, 10*time.Minute)
}
