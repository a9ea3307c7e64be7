package vault

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPasswordsThatBMCsTake(t *testing.T) {
	seen := map[string]bool{}
	for range 2000 {
		p := NewBMCPassword()
		assert.False(t, seen[p], "twice")
		seen[p] = true
		assert.Regexp(t, regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{15}$`), p)
		for _, class := range []string{`[A-Z]`, `[a-z]`, `[0-9]`} {
			assert.Regexp(t, regexp.MustCompile(class), p)
		}
		assert.NotRegexp(t, regexp.MustCompile(`[0O1lI]`), p, "a person takes it for another")
		for i := 1; i < len(p); i++ {
			assert.NotEqual(t, p[i-1], p[i], p)
		}
	}
}

func TestTheSiteIsRightUnlessItSaysWhatWasReplaced(t *testing.T) {
	a := NewBMCAccount("10.0.0.5", "admin")
	assert.Equal(t, "site's", a.Password("site's"))
	a.Present, a.Replaced = "ours", a.Digest("site's")
	assert.Equal(t, "ours", a.Password("site's"))
	assert.Equal(t, "edited", a.Password("edited"))
	assert.NotEqual(t, a.Digest("x"), NewBMCAccount("10.0.0.5", "admin").Digest("x"), "without a salt")
}

func TestAccountsAreOnDATA(t *testing.T) {
	mounted := false
	dir := filepath.Join(t.TempDir(), "bmc")
	s := &BMCAccounts{Dir: dir, Ready: func() bool { return mounted }}
	a := NewBMCAccount("10.0.0.5", "../admin")
	assert.Error(t, s.Save(a), "DATA is not there")
	assert.True(t, s.IsEmpty())
	mounted = true
	assert.True(t, s.IsEmpty())
	a.Next, a.Tries = "next", []time.Time{time.Unix(1, 0).UTC()}
	require.NoError(t, s.Save(a))

	again := &BMCAccounts{Dir: dir}
	got, ok, err := again.Lookup("10.0.0.5", "../admin")
	require.NoError(t, err)
	assert.True(t, ok)
	assert.Equal(t, a, got)
	assert.True(t, got.IsRotating())
	_, ok, err = again.Lookup("10.0.0.5", "root")
	require.NoError(t, err)
	assert.False(t, ok)

	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	secret, ok := OfFile(BMCAccountDir + "/" + files[0].Name())
	assert.True(t, ok)
	assert.Equal(t, "passwords of BMCs", secret.Name)

	// It is put in the place of another account.
	require.NoError(t, os.Rename(filepath.Join(dir, files[0].Name()), filepath.Join(dir, accountFile("10.0.0.6", "root"))))
	_, ok, err = (&BMCAccounts{Dir: dir}).Lookup("10.0.0.6", "root")
	assert.False(t, ok)
	assert.ErrorContains(t, err, "it is of another account")
}
