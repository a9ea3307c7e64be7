package drivers_test

import (
	"bytes"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"firstlight.dev/firstlight/image/drivers"
	"firstlight.dev/firstlight/image/drivers/moduletest"
)

// module says what it needs.
func module(_ *testing.T, needs string) []byte {
	return moduletest.Module("license=GPL", "depends="+needs, "name=x")
}

func packed(t *testing.T, text []byte) *fstest.MapFile {
	t.Helper()
	var b bytes.Buffer
	w, err := xz.NewWriter(&b)
	require.NoError(t, err)
	_, err = w.Write(text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return &fstest.MapFile{Data: b.Bytes()}
}

func kernel(t *testing.T) fstest.MapFS {
	return fstest.MapFS{
		"modules.builtin":                 {Data: []byte("kernel/drivers/pps/pps-core.ko\n")},
		"kernel/drivers/net/ice.ko.xz":    packed(t, module(t, "gnss,pps-core,libie")),
		"kernel/drivers/gnss/gnss.ko.xz":  packed(t, module(t, "")),
		"kernel/drivers/net/libie.ko":     {Data: module(t, "")},
		"kernel/drivers/ssb/b44_x.ko.xz":  packed(t, module(t, "mii-a")),
		"kernel/drivers/net/mii_a.ko.xz":  packed(t, module(t, "")),
		"kernel/drivers/net/README.ko.md": {Data: module(t, "")},
	}
}

func TestCompleteDrivers(t *testing.T) {
	require.NoError(t, drivers.Check(kernel(t)))
}

func TestADriverWhoseNeedIsLeftOut(t *testing.T) {
	k := kernel(t)
	delete(k, "kernel/drivers/gnss/gnss.ko.xz")
	delete(k, "kernel/drivers/net/mii_a.ko.xz")
	assert.EqualError(t, drivers.Check(k), "drivers are not complete; leave out both or none: "+
		"kernel/drivers/net/ice.ko.xz needs gnss, kernel/drivers/ssb/b44_x.ko.xz needs mii_a")
}

func TestWhatIsNoDirectoryOfDrivers(t *testing.T) {
	k := kernel(t)
	k["kernel/broken.ko"] = &fstest.MapFile{Data: []byte("no module")}
	assert.ErrorContains(t, drivers.Check(k), "kernel/broken.ko")
	assert.Error(t, drivers.Check(fstest.MapFS{"modules.builtin": {}}))
	assert.Error(t, drivers.Check(fstest.MapFS{}))
}
