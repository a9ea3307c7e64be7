package workstation

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatIsAHost(t *testing.T) {
	for host, address := range map[string]string{
		"10.10.110.20": "10.10.110.20:22", "rack-1": "rack-1:22", "rack.example:2222": "rack.example:2222",
		"fd00::1": "[fd00::1]:22", "[fd00::1]": "[fd00::1]:22", "[fd00::1]:2222": "[fd00::1]:2222",
	} {
		assert.NoError(t, CheckHost(host), host)
		assert.Equal(t, address, addPort(host), host)
	}
	for _, host := range []string{"", "last", ".", "..", "../x", "a/b", `a\b`, "root@rack", "-o", "a b", "a\n", "fe80::1%eth0"} {
		assert.ErrorContains(t, CheckHost(host), "is not a host", host)
	}
}

func TestAppliancesAreStored(t *testing.T) {
	s := Store{filepath.Join(t.TempDir(), "appliances")}
	_, err := s.Find("")
	assert.EqualError(t, err, "no appliance was logged in to; run firstlight login HOST")
	_, err = s.Find("one")
	assert.EqualError(t, err, "one was not logged in to; run firstlight login one")
	_, err = s.Find("../one")
	assert.ErrorContains(t, err, "is not a host")

	for i, host := range []string{"one", "two", "one"} {
		a, err := s.Prepare(host, "")
		require.NoError(t, err)
		assert.Equal(t, []int{16443, 16444, 16443}[i], a.Port)
		require.NoError(t, s.Save(a))
		last, err := s.Find("")
		require.NoError(t, err)
		assert.Equal(t, a, last)
	}
	assert.Equal(t, []string{"one", "two"}, s.Hosts())
	a, err := s.Prepare("three", "key")
	require.NoError(t, err)
	assert.True(t, filepath.IsAbs(a.Identity), "a key is found from another folder")
	assert.Equal(t, 16445, a.Port)
	_, err = s.Find("three")
	assert.Error(t, err, "it is stored before it let in")

	info, err := os.Stat(s.path("one", applianceFile))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	removed, err := s.Remove("one")
	require.NoError(t, err)
	assert.True(t, removed)
	_, err = s.Find("")
	assert.EqualError(t, err, "the appliance of the last log-in was logged out; name one with --host: two")
	removed, err = s.Remove("one")
	require.NoError(t, err)
	assert.False(t, removed)
	a, err = s.Find("two")
	require.NoError(t, err)
	assert.Equal(t, "127.0.0.1:16444", a.Address())

	require.NoError(t, os.WriteFile(s.path("two", applianceFile), []byte("{"), 0o600))
	_, err = s.Find("two")
	assert.ErrorContains(t, err, "run firstlight login two again")
}
