package drivers_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"firstlight.dev/firstlight/image/drivers"
)

// module is an ELF file whose .modinfo says what it needs.
func module(t *testing.T, needs string) []byte {
	t.Helper()
	info := "license=GPL\x00depends=" + needs + "\x00name=x\x00"
	names := "\x00.modinfo\x00.shstrtab\x00"
	const header, section = 64, 64
	le := binary.LittleEndian
	b := make([]byte, header+3*section)
	copy(b, "\x7fELF\x02\x01\x01")
	le.PutUint16(b[16:], 1)  // ET_REL
	le.PutUint16(b[18:], 62) // EM_X86_64
	le.PutUint32(b[20:], 1)
	le.PutUint64(b[40:], header)
	le.PutUint16(b[52:], header)
	le.PutUint16(b[58:], section)
	le.PutUint16(b[60:], 3)
	le.PutUint16(b[62:], 2)
	for i, s := range []struct {
		name, kind uint32
		text       string
	}{{1, 1, info}, {10, 3, names}} {
		at := b[header+(i+1)*section:]
		le.PutUint32(at, s.name)
		le.PutUint32(at[4:], s.kind)
		le.PutUint64(at[24:], uint64(len(b)))
		le.PutUint64(at[32:], uint64(len(s.text)))
		b = append(b, s.text...)
	}
	return b
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
