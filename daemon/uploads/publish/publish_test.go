package publish_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/publish"
)

// fixture is a folder with a store in which objects can be put.
type fixture struct {
	t   *testing.T
	dir string
}

func newFixture(t *testing.T) fixture {
	b := fixture{t, t.TempDir()}
	for _, dir := range []string{artifact.ScratchDir, artifact.ImagesDir} {
		require.NoError(t, os.Mkdir(filepath.Join(b.dir, dir), 0o755))
	}
	return b
}

// put stores an object as the S3 server does: a new file takes the name.
func (b fixture) put(owner, name, text string) artifact.Metadata {
	return b.store(artifact.OS, owner, name, text)
}

func (b fixture) store(c artifact.Collection, owner, name, text string) artifact.Metadata {
	r := artifact.Metadata{Owner: owner, ClusterName: "beta", ImageName: name, ImageLength: int64(len(text)), ImageOffset: int64(len(text)),
		Complete: true, SHA256: "of " + text, Format: "raw", VirtualSize: int64(len(text))}
	path := filepath.Join(b.dir, artifact.StoreDir, c.Bucket(), owner, "beta", name)
	require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(b.t, os.WriteFile(path+".new", []byte(text), 0o644))
	require.NoError(b.t, os.Rename(path+".new", path))
	return r
}

func (b fixture) sync(records ...artifact.Metadata) (artifact.Catalog, error) {
	failed := publish.Folder(b.dir).Sync(map[artifact.Collection][]artifact.Metadata{artifact.OS: records}, map[artifact.Collection]artifact.Usage{artifact.OS: {Artifacts: len(records)}})
	c, err := publish.Read(filepath.Join(b.dir, artifact.CatalogFile))
	require.NoError(b.t, err)
	return c, failed
}

func (b fixture) images() map[string]string {
	all := map[string]string{}
	top := filepath.Join(b.dir, artifact.ImagesDir)
	require.NoError(b.t, filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		name, _ := filepath.Rel(top, path)
		all[name] = "folder"
		if !d.IsDir() {
			text, err := os.ReadFile(path)
			all[name] = string(text)
			return err
		}
		return nil
	}))
	return all
}

func TestImagesComeChangeAndGo(t *testing.T) {
	b := newFixture(t)
	first, other := b.put("alpha", "disk", "first"), b.put("gamma", "disk", "other")
	half := b.put("alpha", "half", "h")
	half.Complete = false
	c, err := b.sync(first, other, half)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"alpha": "folder", "alpha/beta": "folder", "alpha/beta/disk": "first",
		"gamma": "folder", "gamma/beta": "folder", "gamma/beta/disk": "other"}, b.images())
	names := c.ByName()
	assert.Len(t, names, 2, "a name alone is of whoever uploads first, so it is of none")
	assert.Equal(t, "of other", names["gamma.beta.disk"].SHA256)

	again, err := b.sync(first, other, half)
	require.NoError(t, err)
	assert.Equal(t, c, again, "nothing changed, nothing was written")

	second := b.put("alpha", "disk", "second")
	c, err = b.sync(second)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"alpha": "folder", "alpha/beta": "folder", "alpha/beta/disk": "second"}, b.images())
	assert.Equal(t, "of second", c.ByName()["alpha.beta.disk"].SHA256)
	assert.Equal(t, 1, c.Collections[artifact.OS].Artifacts)

	c, err = b.sync()
	require.NoError(t, err)
	assert.Empty(t, b.images())
	assert.Empty(t, c.Images)
}

func TestAnImageThatIsNotWhatItsRecordSaysKeepsNoOtherBack(t *testing.T) {
	b := newFixture(t)
	good, short := b.put("alpha", "good", "good"), b.put("alpha", "short", "short")
	short.ImageLength++
	absent := good
	absent.ImageName = "absent"
	c, err := b.sync(absent, good, short)
	assert.ErrorContains(t, err, "publish os_images/alpha/beta/absent: ")
	assert.ErrorContains(t, err, "publish os_images/alpha/beta/short: the store's file has 5 bytes, not 6")
	require.Len(t, c.Images, 1)
	assert.Equal(t, "good", c.Images[0].Name)
	assert.Equal(t, "good", b.images()["alpha/beta/good"])
}

func TestBinariesAreGivenByDigestAndPackagesByTheRepository(t *testing.T) {
	b := newFixture(t)
	const digest = "5e9c0b6f0a1d"
	tool := b.store(artifact.Binary, "alpha", "tool", "a tool")
	second := b.store(artifact.Binary, "gamma", "tool", "a tool")
	deb := b.store(artifact.Binary, "alpha", "hello_2.10_amd64", "!<arch>\ndebian-binary   1700000000  0     0     100644  4")
	unread := b.store(artifact.Binary, "alpha", "unread", "x")
	tool.SHA256, second.SHA256, deb.SHA256, unread.SHA256 = digest, digest, "77", ""
	sync := func(records ...artifact.Metadata) {
		t.Helper()
		require.NoError(t, publish.Folder(b.dir).Sync(map[artifact.Collection][]artifact.Metadata{artifact.Binary: records}, nil))
	}
	names := func() (all []string) {
		for _, dir := range []string{artifact.DigestsDir, artifact.PackagesDir} {
			files, err := os.ReadDir(filepath.Join(b.dir, dir))
			require.NoError(t, err)
			for _, f := range files {
				all = append(all, dir+"/"+f.Name())
			}
		}
		return all
	}
	sync() // before there ever were any
	sync(tool, second, deb, unread)
	assert.Equal(t, []string{"digests/" + digest, "digests/77", "packages/alpha.beta.hello_2.10_amd64.deb"}, names())
	text, err := os.ReadFile(filepath.Join(b.dir, artifact.DigestsDir, digest))
	require.NoError(t, err)
	assert.Equal(t, "a tool", string(text))
	sync(second)
	assert.Equal(t, []string{"digests/" + digest}, names(), "one of two with the same bytes is still there")
	sync()
	assert.Empty(t, names())
}

func TestAStoreElsewhereOffersNothing(t *testing.T) {
	b := newFixture(t)
	r := b.put("alpha", "disk", "first")
	_, err := b.sync(r)
	require.NoError(t, err)
	usage := map[artifact.Collection]artifact.Usage{artifact.OS: {Artifacts: 3}}
	require.NoError(t, publish.Folder(b.dir).Withdraw(map[artifact.Collection][]artifact.Metadata{artifact.OS: {r}}, usage))
	c, err := publish.Read(filepath.Join(b.dir, artifact.CatalogFile))
	require.NoError(t, err)
	assert.Empty(t, c.Images)
	assert.Equal(t, usage, c.Collections)
	assert.Empty(t, b.images())
}
