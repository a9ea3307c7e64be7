package daemon

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/away"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3test"
)

// TestTheListSaysWhatAnAwayCopyHas holds the two lists to each other.
func TestTheListSaysWhatAnAwayCopyHas(t *testing.T) {
	for _, s := range vault.Secrets() {
		has := s.Name == "site" // it is an entry of its own
		for _, file := range s.Files {
			for _, part := range away.Parts() {
				has = has || file == part.Path || strings.HasPrefix(file, part.Path+"/")
			}
		}
		assert.Equal(t, s.Away, has, s.Name)
	}
}

// TestCopiesGoToTheSitesStore by its schedule, and a store that is away is said.
func TestCopiesGoToTheSitesStore(t *testing.T) {
	store := s3test.StartInMemory(t, nil)
	store.RetryTimeout = time.Millisecond
	client, err := s3.New(store)
	require.NoError(t, err)
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	c := &Copier{place: away.Place{Root: t.TempDir()}}
	text := "name: rack\nawayCopy:\n  recipients: [" + key.Recipient().String() + "]\n  every: 5m\n  store: {endpoint: '" +
		store.Endpoint + "', bucket: racks, accessKey: " + store.AccessKey + ", secretKey: " + store.SecretKey + "}\n"
	for name, content := range map[string]string{
		"/run/firstlight/site/site.yaml":    text,
		"/var/lib/firstlight/machine-id":    "0123456789abcdef0123456789abcdef\n",
		"/var/lib/firstlight/ca/ca.key":     "authority",
		"/var/lib/firstlight/hosts/n1.json": "{}",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(c.path(name)), 0o700))
		require.NoError(t, os.WriteFile(c.path(name), []byte(content), 0o600))
	}
	s, problems := site.Load("site.yaml", []byte(text))
	require.Empty(t, problems)
	asked := s.WithDefaults().AwayCopy

	d := &Daemon{copier: c, log: slog.New(slog.DiscardHandler)}
	d.makeDueCopy(t.Context(), asked) // the bucket is not there
	assert.Contains(t, c.notes(asked)[0], "There is no away copy yet; the last try failed: store away copy at "+store.Endpoint)
	assert.NotEmpty(t, c.status(asked).Error)

	require.NoError(t, client.MakeBucket(t.Context(), "racks"))
	d.makeDueCopy(t.Context(), asked)
	assert.NotEmpty(t, c.status(asked).Error, "it was tried again at once")
	require.NoError(t, c.place.Save(away.Record{Tried: time.Now().Add(-time.Hour), Error: "it was down"}))
	d.makeDueCopy(t.Context(), asked)
	assert.Empty(t, c.notes(asked))
	assert.Empty(t, c.status(asked).Error)
	d.makeDueCopy(t.Context(), asked) // not due

	var names []string
	require.NoError(t, client.List(t.Context(), "racks", "rack/", func(o blobs.Object) error {
		names = append(names, o.Name)
		return nil
	}))
	require.Len(t, names, 1)
	assert.Equal(t, store.Endpoint+"/racks/"+names[0], c.status(asked).To)
	sealed, err := client.Get(t.Context(), "racks", names[0], 1<<20)
	require.NoError(t, err)
	assert.NotContains(t, string(sealed), "authority")
	h, err := away.Check(bytes.NewReader(sealed), []age.Identity{key})
	require.NoError(t, err)
	assert.Equal(t, "rack", h.Site)
	assert.Equal(t, 1, h.Hosts)
	assert.Equal(t, "0123456789abcdef0123456789abcdef", h.MachineID)
}

// TestACopyIsMadeWhileSITEIsNotMounted: a stick that fails is when it is needed.
func TestACopyIsMadeWhileSITEIsNotMounted(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	c := &Copier{place: away.Place{Root: t.TempDir()}}
	for name, content := range map[string]string{
		stick.DataDir + "/" + stick.MachineIDName: "0123456789abcdef0123456789abcdef\n",
		stick.BootInfoFile:                        "{}",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(c.path(name)), 0o700))
		require.NoError(t, os.WriteFile(c.path(name), []byte(content), 0o600))
	}

	var sealed bytes.Buffer
	recipients := []age.Recipient{key.Recipient()}
	require.ErrorIs(t, c.Write(&sealed, recipients), host.ErrNoSite, "nothing was applied yet")
	history := sitedocument.History{Dir: c.path(NewSiteHistory().Dir)}
	for _, name := range []string{"old", "rack"} {
		require.NoError(t, history.Add([]byte("name: "+name+"\n"), "", time.Now()))
	}
	_, err = c.Recipients()
	require.ErrorContains(t, err, "firstlightd backup --recipient age1…")
	require.NoError(t, c.Write(&sealed, recipients))
	h, err := away.Check(&sealed, []age.Identity{key})
	require.NoError(t, err)
	assert.Equal(t, "rack", h.Site)
}

// TestAnotherAddressOnProvisioningIsRefused: servers in service would not find the appliance. The one that is meant may be
// said or left out, and documents may differ in all else.
func TestAnotherAddressOnProvisioningIsRefused(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	newCopier := func(document string) *Copier {
		c := &Copier{place: away.Place{Root: t.TempDir()}}
		for name, content := range map[string]string{
			filepath.Join(stick.SiteDir, host.SiteName): document,
			stick.DataDir + "/" + stick.MachineIDName:   "0123456789abcdef0123456789abcdef\n",
			stick.DataDir + "/ca/ca.key":                "authority",
		} {
			require.NoError(t, os.MkdirAll(filepath.Dir(c.path(name)), 0o700))
			require.NoError(t, os.WriteFile(c.path(name), []byte(content), 0o600))
		}
		return c
	}
	var sealed bytes.Buffer
	old := newCopier("name: rack\nnetworks: {provisioning: {interface: eth0}}\n")
	require.NoError(t, old.Write(&sealed, []age.Recipient{key.Recipient()}))

	for networks, refusal := range map[string]string{
		"{provisioning: {interface: ens1, cidr: 172.22.0.0/24, address: 172.22.0.1}}": "",
		"{provisioning: {interface: ens1, cidr: 172.22.0.0/24, address: 172.22.0.2}}": "has 172.22.0.1/24 on the provisioning " +
			"network, where servers in service find it, and this one has 172.22.0.2/24; give it that address in site.yaml first",
		"{provisioning: {cidr: 172.30.0.0/24}}": "and this one has 172.30.0.1/24",
	} {
		blank := newCopier("name: rack\nnetworks: " + networks + "\n")
		_, err = blank.Unpack(bytes.NewReader(sealed.Bytes()), []age.Identity{key})
		if refusal == "" {
			require.NoError(t, err)
			assert.Contains(t, blank.notes(nil)[0], "to take the rack over, restart this machine: systemctl reboot")
			continue
		}
		require.ErrorIs(t, err, away.ErrForeign)
		assert.ErrorContains(t, err, refusal)
		assert.Empty(t, blank.notes(nil), "something is left")
	}
}
