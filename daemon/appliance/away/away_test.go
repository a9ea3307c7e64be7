package away

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/stick"
)

const inService = `{"host":{"status":{"provisioning":{"state":"provisioned"}}},"installed":true}`

// state is what an appliance with a server in service has, by paths.
func state() map[string]string {
	return map[string]string{
		stick.DataDir + "/hosts/node1.json":                inService,
		stick.DataDir + "/hosts/bmc/10.0.0.1:443.json":     "pin",
		stick.DataDir + "/secret/ironic.credentials":       "password",
		stick.DataDir + "/ssh/id_ed25519":                  "key",
		stick.DataDir + "/ssh/known/node1.pub":             "host key",
		stick.DataDir + "/ca/ca.key":                       "authority",
		stick.DataDir + "/machine-id":                      "0123456789abcdef0123456789abcdef\n",
		stick.DataDir + "/dhcp/leases.journal":             "lease",
		"/opt/kud/multi-cluster/edge/installed.json":       "record",
		"/opt/kud/multi-cluster/edge/artifacts/admin.conf": "kubeconfig",
		"/etc/kubernetes/pki/ca.key":                       "Kubernetes",
		"/etc/kubernetes/pki/ca.crt":                       "certificate",
		"/etc/kubernetes/pki/sa.key":                       "tokens",
	}
}

// others are files of the same appliance that can be made again.
func others() map[string]string {
	return map[string]string{
		"/var/lib/etcd/member/snap/db":                    "objects",
		"/var/lib/ironic/ironic.sqlite":                   "nodes",
		"/etc/kubernetes/admin.conf":                      "kubeconfig",
		"/opt/kud/multi-cluster/edge/log/install.log":     "log",
		stick.DataDir + "/journal.json":                   "runs",
		stick.DataDir + "/secret/.ironic.credentials.new": "torn",
	}
}

func write(t *testing.T, files map[string]string) Place {
	t.Helper()
	p := Place{memoryDir(t)}
	for name, text := range files {
		require.NoError(t, writeFile(p.path(name), []byte(text), 0o600))
	}
	return p
}

// memoryDir is a folder in memory where there is such a place: what is tested syncs whole file systems.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "away")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// tree is all that is below the root, without what the package itself leaves.
func tree(t *testing.T, p Place) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(p.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, p.Root)
		text, err := os.ReadFile(path)
		if name != RestoredFile && name != waitFile {
			all[name] = string(text)
		}
		return err
	}))
	return all
}

var header = Header{Version: "0.5", Site: "rack", Appliance: "rack", Made: time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)}

func newKey(t *testing.T) *age.X25519Identity {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return key
}

func copyOf(t *testing.T, p Place, h Header, key *age.X25519Identity) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, p.Write(&b, h, []byte("name: rack\n"), []age.Recipient{key.Recipient()}))
	return b.Bytes()
}

// takeAny takes any document.
func takeAny([]byte) error { return nil }

// reboot is what a machine that starts again has lost.
func reboot(t *testing.T, p Place) {
	t.Helper()
	require.NoError(t, os.RemoveAll(p.path(stick.RunDir)))
}

func merge(all ...map[string]string) map[string]string {
	m := map[string]string{}
	for _, one := range all {
		for name, text := range one {
			m[name] = text
		}
	}
	return m
}

// blank is the state of a stick that has run for a while in a rack that it does not know.
func blank() map[string]string {
	return map[string]string{
		stick.DataDir + "/hosts/node1.json":          `{"host":{"status":{"provisioning":{"state":"registering"}}}}`,
		stick.DataDir + "/hosts/node9.json":          `{"host":{"status":{"provisioning":{"state":""}}}}`,
		stick.DataDir + "/secret/ironic.credentials": "another",
		stick.DataDir + "/secret/packages.key":       "another",
		stick.DataDir + "/ca/ca.key":                 "another",
		stick.DataDir + "/machine-id":                "ffffffffffffffffffffffffffffffff\n",
		stick.DataDir + "/journal.json":              "its own",
		"/var/lib/etcd/member/snap/db":               "its own",
		"/var/lib/ironic/ironic.sqlite":              "its own",
		"/etc/kubernetes/pki/ca.key":                 "its own",
		"/etc/kubernetes/admin.conf":                 "its own",
	}
}

// restored is the state of that stick afterwards: nothing of its own that would contradict.
func restored() map[string]string {
	return merge(state(), map[string]string{stick.DataDir + "/journal.json": "its own"})
}

func TestAnotherStickTakesOver(t *testing.T) {
	key := newKey(t)
	text := copyOf(t, write(t, merge(state(), others())), header, key)
	assert.NotContains(t, string(text), "authority", "it is not sealed")

	p := write(t, blank())
	h, err := p.Unpack(bytes.NewReader(text), []age.Identity{newKey(t), key}, "rack", takeAny)
	require.NoError(t, err)
	want := header
	want.Format, want.Hosts, want.Clusters = Format, 1, 1
	assert.Equal(t, want, h)

	// Programs have the old state open until the machine starts again.
	assert.Equal(t, Waiting, p.State())
	done, err := p.Resume()
	require.NoError(t, err)
	assert.False(t, done)
	assert.Equal(t, "another", tree(t, p)[stick.DataDir+"/ca/ca.key"])

	reboot(t, p)
	assert.Equal(t, Due, p.State())
	done, err = p.Resume()
	require.NoError(t, err)
	assert.True(t, done)
	assert.Equal(t, restored(), tree(t, p))
	was, ok := p.LastRestore()
	assert.True(t, ok)
	assert.Equal(t, want, was)

	done, err = p.Resume()
	require.NoError(t, err)
	assert.False(t, done, "it was restored twice")
	_, err = p.Unpack(bytes.NewReader(text), []age.Identity{key}, "rack", takeAny)
	assert.ErrorIs(t, err, ErrNotBlank, "it has servers in service now")
}

// TestCutsOfARestore cuts the power after each step, and in the middle of the copying; what begins again ends as if
// nothing had happened.
func TestCutsOfARestore(t *testing.T) {
	key := newKey(t)
	text := copyOf(t, write(t, merge(state(), others())), header, key)
	n := len(Place{}.steps())
	for cut := range n + 1 {
		p := write(t, blank())
		_, err := p.Unpack(bytes.NewReader(text), []age.Identity{key}, "rack", takeAny)
		require.NoError(t, err)
		reboot(t, p)
		for _, s := range p.steps()[:cut] {
			require.NoError(t, s.do())
		}
		if cut < n { // the next one in part
			require.NoError(t, os.RemoveAll(p.path(stick.DataDir+"/ssh")))
			require.NoError(t, writeFile(p.path(stick.DataDir+"/ca/ca.key"), []byte("to"), 0o600))
		}
		if p.State() == None { // the copy was given up: all of it must have been in place before
			require.Contains(t, []string{"tidy", "end"}, append(stepNames(p), "end")[cut])
			continue
		}
		_, err = p.Resume()
		require.NoError(t, err)
		assert.Equal(t, restored(), tree(t, p), "cut after %d steps", cut)
	}
}

func stepNames(p Place) (all []string) {
	for _, s := range p.steps() {
		all = append(all, s.name)
	}
	return all
}

// TestCutsOfUnpacking: what is not whole is never put in place.
func TestCutsOfUnpacking(t *testing.T) {
	key := newKey(t)
	text := copyOf(t, write(t, state()), header, key)
	p := write(t, blank())
	before := tree(t, p)
	require.NoError(t, writeFile(p.path(partialDir+"/tree/var/lib/firstlight/ca/ca.key"), []byte("half"), 0o600))
	require.NoError(t, writeFile(p.path(partialDir+"/tree/var/lib/firstlight/ssh/half"), []byte("half"), 0o600))

	reboot(t, p)
	done, err := p.Resume()
	require.NoError(t, err)
	assert.False(t, done)
	_, err = p.Unpack(bytes.NewReader(text), []age.Identity{key}, "rack", takeAny)
	require.NoError(t, err)
	reboot(t, p)
	_, err = p.Resume()
	require.NoError(t, err)
	assert.Equal(t, restored(), tree(t, p))

	p = write(t, before)
	require.NoError(t, writeFile(p.path(partialDir+"/half"), []byte("half"), 0o600))
	require.NoError(t, p.Tidy())
	assert.Equal(t, before, tree(t, p))
}

// TestWhatIsRefused: each with its reason, and nothing is left of it.
func TestWhatIsRefused(t *testing.T) {
	key := newKey(t)
	source := write(t, state())
	text := copyOf(t, source, header, key)
	changed := func(at int) []byte {
		b := bytes.Clone(text)
		b[at] ^= 1
		return b
	}
	sealed := func(files ...file) []byte {
		var b bytes.Buffer
		require.NoError(t, seal(&b, files, []age.Recipient{key.Recipient()}))
		return b.Bytes()
	}
	head := file{headerName, 0o600, []byte(`{"format":1,"site":"rack"}`)}
	cases := []struct {
		name   string
		text   []byte
		site   string
		reason error
		says   string
	}{
		{"another key", copyOf(t, source, header, newKey(t)), "rack", ErrKey, "this recovery key does not open it: it was sealed to another"},
		{"another site", text, "lab", ErrForeign, "it is of site rack, and site.yaml of this appliance is of lab: one takes over its own site only"},
		{"its end is missing", text[:len(text)-1], "", ErrDamaged, "it is truncated, damaged, or no away copy"},
		{"half is missing", text[:len(text)/2], "", ErrDamaged, "it is truncated, damaged, or no away copy"},
		{"nothing", nil, "", ErrDamaged, "it is truncated, damaged, or no away copy"},
		{"its last byte is another", changed(len(text) - 1), "", ErrDamaged, "it is truncated, damaged, or no away copy"},
		{"a byte in the middle is another", changed(len(text) * 2 / 3), "", ErrDamaged, "it is truncated, damaged, or no away copy"},
		{"not sealed", []byte("PK\x03\x04, an archive of another program"), "", ErrDamaged, "it is truncated, damaged, or no away copy"},
		{"a later format", sealed(file{headerName, 0o600, []byte(`{"format":2,"version":"9.1","site":"rack"}`)}), "rack", ErrNewer,
			"it was made by Firstlight 9.1, in format 2; this appliance knows formats up to 1: restore onto one of that version, or of a newer one"},
		{"no header", sealed(file{"var/lib/firstlight/ca/ca.key", 0o600, nil}), "rack", ErrDamaged, "it is no away copy"},
		{"a file of another place", sealed(head, file{"etc/shadow", 0o600, nil}), "rack", ErrDamaged, `entry "etc/shadow" does not belong to one`},
		{"a way out", sealed(head, file{"var/lib/firstlight/ca/../../../../etc/shadow", 0o600, nil}), "rack", ErrDamaged, "does not belong to one"},
		{"an absolute path", sealed(head, file{"/var/lib/firstlight/ca/ca.key", 0o600, nil}), "rack", ErrDamaged, "does not belong to one"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := write(t, blank())
			_, err := p.Unpack(bytes.NewReader(c.text), []age.Identity{key}, c.site, takeAny)
			require.ErrorIs(t, err, c.reason)
			assert.ErrorContains(t, err, c.says)
			assert.Equal(t, None, p.State())
			assert.Equal(t, blank(), tree(t, p), "something is left")
			if c.reason != ErrForeign {
				_, err = Check(bytes.NewReader(c.text), []age.Identity{key})
				assert.ErrorIs(t, err, c.reason)
			}
		})
	}

	h, err := Check(bytes.NewReader(text), []age.Identity{key})
	require.NoError(t, err)
	assert.Equal(t, 1, h.Hosts)
}

// TestEveryTruncationIsRefused cuts a copy in its head, in its payload and in its end.
func TestEveryTruncationIsRefused(t *testing.T) {
	key := newKey(t)
	text := copyOf(t, write(t, map[string]string{stick.DataDir + "/ca/ca.key": "authority"}), header, key)
	for n := 0; n < len(text); n += 1 + n/100 {
		_, err := Check(bytes.NewReader(text[:n]), []age.Identity{key})
		require.Error(t, err, "%d of %d bytes", n, len(text))
	}
	_, err := Check(bytes.NewReader(text[:len(text)-1]), []age.Identity{key})
	require.ErrorIs(t, err, ErrDamaged)
}

// TestTheDocumentOfTheCopyIsTaken before the rest counts, whether or not this appliance has one.
func TestTheDocumentOfTheCopyIsTaken(t *testing.T) {
	key := newKey(t)
	text := copyOf(t, write(t, state()), header, key)
	for _, site := range []string{"", "rack"} {
		p := write(t, blank())
		_, err := p.Unpack(bytes.NewReader(text), []age.Identity{key}, site, func([]byte) error { return fs.ErrPermission })
		require.ErrorIs(t, err, fs.ErrPermission)
		assert.Equal(t, blank(), tree(t, p))

		var taken string
		_, err = p.Unpack(bytes.NewReader(text), []age.Identity{key}, site, func(b []byte) error { taken = string(b); return nil })
		require.NoError(t, err)
		assert.Equal(t, "name: rack\n", taken)
	}
}

func TestOnlyABlankStickIsRestoredOnto(t *testing.T) {
	key := newKey(t)
	text := copyOf(t, write(t, state()), header, key)
	for name, c := range map[string]struct{ file, text, says string }{
		"in service":      {stick.DataDir + "/hosts/n1.json", inService, "records of host n1, which would be lost"},
		"being installed": {stick.DataDir + "/hosts/n1.json", `{"host":{"status":{"provisioning":{"state":"provisioning"}}}}`, "host n1"},
		"was in service":  {stick.DataDir + "/hosts/n1.json", `{"installed":true,"host":{"status":{"provisioning":{"state":"available"}}}}`, "host n1"},
		"torn":            {stick.DataDir + "/hosts/n1.json", `{"host":`, "host n1"},
		"a cluster":       {"/opt/kud/multi-cluster/edge/installed.json", "{}", "cluster edge"},
		"one being made":  {"/opt/kud/multi-cluster/edge/cluster.json", "{}", "cluster edge"},
	} {
		t.Run(name, func(t *testing.T) {
			p := write(t, map[string]string{c.file: c.text})
			_, err := p.Unpack(bytes.NewReader(text), []age.Identity{key}, "", takeAny)
			require.ErrorIs(t, err, ErrNotBlank)
			assert.ErrorContains(t, err, c.says)
			assert.Equal(t, map[string]string{c.file: c.text}, tree(t, p))
		})
	}
}
