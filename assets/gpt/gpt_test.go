package gpt_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/gpt"
)

const size = 8 << 20

func guid(t testing.TB, text string) gpt.GUID {
	g, err := gpt.ParseGUID(text)
	require.NoError(t, err)
	return g
}

func table(t testing.TB) *gpt.Table {
	return &gpt.Table{
		GUID: guid(t, "00112233-4455-6677-8899-aabbccddeeff"),
		Partitions: []gpt.Partition{
			{Index: 1, Type: guid(t, gpt.TypeESP), GUID: guid(t, "00112233-4455-6677-8899-000000000001"), First: 2048, Last: 4095, Name: "ESP"},
			{Index: 3, Type: guid(t, gpt.TypeLinux), GUID: guid(t, "00112233-4455-6677-8899-000000000003"), First: 4096, Last: 8191, Name: "Größe-3", Attributes: 1 << 60},
		},
	}
}

func written(t testing.TB) []byte {
	fit, err := table(t).Resize(size)
	require.NoError(t, err)
	start, end, err := fit.Encode()
	require.NoError(t, err)
	b := make([]byte, size)
	copy(b, gpt.ProtectiveMBR(nil, size))
	copy(b[gpt.SectorSize:], start)
	copy(b[size-len(end):], end)
	return b
}

func TestGUIDText(t *testing.T) {
	g := guid(t, "C12A7328-F81F-11D2-BA4B-00A0C93EC93B")
	assert.Equal(t, []byte{0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b}, g[:10], "UEFI appendix A: the first three fields are little-endian")
	assert.Equal(t, gpt.TypeESP, g.String())
	for _, bad := range []string{"", "c12a7328", "c12a7328-f81f-11d2-ba4b-00a0c93ec93", "c12a7328-f81f-11d2-ba4b-00a0c93ec9xx", "c12a7328f-81f-11d2-ba4b-00a0c93ec93b"} {
		_, err := gpt.ParseGUID(bad)
		assert.Error(t, err, bad)
	}
}

func TestWrittenIsRead(t *testing.T) {
	b := written(t)
	primary, err := gpt.ReadPrimary(bytes.NewReader(b))
	require.NoError(t, err)
	backup, err := gpt.ReadBackup(bytes.NewReader(b), size)
	require.NoError(t, err)
	assert.Equal(t, table(t).Partitions, primary.Partitions)
	assert.Equal(t, primary.Partitions, backup.Partitions)
	assert.Equal(t, primary.MyLBA, backup.OtherLBA)
	assert.Equal(t, backup.MyLBA, primary.OtherLBA)
	p, ok := primary.Find("Größe-3")
	require.True(t, ok)
	assert.EqualValues(t, 2<<20, p.Offset())
	assert.EqualValues(t, 2<<20, p.Size())
}

func TestAnyFlippedByteIsFound(t *testing.T) {
	sound := written(t)
	for at := gpt.SectorSize; at < gpt.SectorSize+92; at++ {
		b := bytes.Clone(sound)
		b[at] ^= 0x10
		_, err := gpt.ReadPrimary(bytes.NewReader(b))
		assert.Error(t, err, "byte %d of the header", at-gpt.SectorSize)
	}
	for at := 2 * gpt.SectorSize; at < gpt.PrimarySectors*gpt.SectorSize; at += 61 {
		b := bytes.Clone(sound)
		b[at] ^= 0x10
		_, err := gpt.ReadPrimary(bytes.NewReader(b))
		assert.Error(t, err, "byte %d of the entries", at)
	}
}

func TestFit(t *testing.T) {
	larger, err := table(t).Resize(2 * size)
	require.NoError(t, err)
	assert.EqualValues(t, 2*size/512-1, larger.OtherLBA)
	_, err = table(t).Resize(4 << 20)
	assert.ErrorContains(t, err, "partition 3: sectors 4096 to 8191 are not within the usable")
	_, err = table(t).Resize(1000)
	assert.ErrorContains(t, err, "no room for a GPT")
	double := table(t)
	double.Partitions[1].First = 4000
	_, err = double.Resize(size)
	assert.ErrorContains(t, err, "partitions 1 and 3 overlap")
}

// FuzzRead holds that no bytes make the reader panic or return a table that reaches
// outside itself.
func FuzzRead(f *testing.F) {
	sound := written(f)
	f.Add(sound[512 : 34*512])
	f.Add([]byte("EFI PART"))
	f.Fuzz(func(t *testing.T, b []byte) {
		disk := append(make([]byte, 512), b...)
		got, err := gpt.ReadPrimary(bytes.NewReader(disk))
		if err != nil {
			return
		}
		for _, p := range got.Partitions {
			if p.First > p.Last || p.Last > got.LastLBA {
				t.Fatalf("accepted %+v in %+v", p, got)
			}
		}
	})
}
