package redfish

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/image/lab"
)

// server is a machine of QEMU behind a BMC.
type server struct {
	*lab.Machine
	ctx context.Context
}

func (s server) IsOn() bool               { return s.IsRunning() }
func (s server) SwitchOff() error         { return s.Kill() }
func (s server) ShutDown() error          { return s.Kill() }
func (s server) Insert(file string) error { return s.Machine.Insert(s.ctx, file) }

func (s server) SwitchOn(device string) error {
	s.Reconfigure(func(c *lab.Config) { c.BootFrom(lab.BootDevice(device)) })
	return s.Start(s.ctx)
}

// TestAMachineBootsFromADisc that its BMC has fetched, once; then it finds another disc in the drive, which was put there
// while it was on.
func TestAMachineBootsFromADisc(t *testing.T) {
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("qemu-system-x86_64 is not installed; scripts/deps lab installs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	images := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(disc("booted " + r.URL.Path + "\n"))
	}))
	defer images.Close()
	m, err := lab.New(lab.Config{
		Dir: t.TempDir(), CPUs: 1, MiB: 64, CD: &lab.CD{}, NICs: []lab.NIC{{NoROM: true}},
		Disks: []lab.Disk{{Bus: lab.Virtio, Bytes: 1 << 20}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	_, c := start(t, t.TempDir(), server{m, ctx})
	tell := func(method, path, body string) {
		response, said := c.ask(method, path, body)
		require.Less(t, response.StatusCode, 300, "%v", said)
	}
	insert := func(name string) { tell(http.MethodPost, insertPath, fmt.Sprintf(`{"Image": %q}`, images.URL+name)) }
	fromDisc := `{"Boot": {"BootSourceOverrideTarget": "Cd", "BootSourceOverrideEnabled": "Once"}}`

	insert("/first.iso")
	tell(http.MethodPatch, SystemPath, fromDisc)
	tell(http.MethodPost, resetPath, `{"ResetType": "On"}`)
	_, err = m.Console().Wait(ctx, "booted /first.iso")
	require.NoError(t, err)
	_, said := c.ask(http.MethodGet, SystemPath, "")
	assert.Equal(t, "None", said["Boot"].(map[string]any)["BootSourceOverrideTarget"])

	insert("/second.iso")
	assert.Contains(t, inDrive(t, ctx, m), "disc-")
	q, err := m.QMP(ctx)
	require.NoError(t, err)
	require.NoError(t, q.Execute(ctx, "system_reset", nil, nil))
	require.NoError(t, q.Close())
	_, err = m.Console().Wait(ctx, "booted /second.iso")
	require.NoError(t, err)

	tell(http.MethodPost, ejectPath, "")
	assert.Empty(t, inDrive(t, ctx, m))
	tell(http.MethodPost, resetPath, `{"ResetType": "ForceOff"}`)
	assert.False(t, m.IsRunning())
}

// inDrive is the file of the disc that QEMU has in the drive; "": it is empty.
func inDrive(t *testing.T, ctx context.Context, m *lab.Machine) string {
	t.Helper()
	q, err := m.QMP(ctx)
	require.NoError(t, err)
	defer q.Close()
	var drives []struct {
		Device   string
		Inserted struct{ File string }
	}
	require.NoError(t, q.Execute(ctx, "query-block", nil, &drives))
	for _, d := range drives {
		if d.Device == "disc" {
			return d.Inserted.File
		}
	}
	t.Fatal("the machine has no drive")
	return ""
}

// disc is the image of a disc whose boot program prints text on the serial line (El Torito, version 1.0, without
// emulation).
func disc(text string) []byte {
	const sector, catalog, program = 2048, 19, 20
	image := make([]byte, 300*sector)
	at := func(n int) []byte { return image[n*sector:] }
	copy(at(16), "\x01CD001\x01")
	copy(at(17), "\x00CD001\x01EL TORITO SPECIFICATION")
	binary.LittleEndian.PutUint32(at(17)[0x47:], catalog)
	copy(at(18), "\xffCD001\x01")

	copy(at(catalog), []byte{1}) // for x86
	copy(at(catalog)[0x1e:], []byte{0x55, 0xaa})
	var sum uint16
	for i := 0; i < 0x20; i += 2 {
		sum += binary.LittleEndian.Uint16(at(catalog)[i:])
	}
	binary.LittleEndian.PutUint16(at(catalog)[0x1c:], -sum)
	entry := at(catalog)[0x20:]
	entry[0] = 0x88 // it boots
	binary.LittleEndian.PutUint16(entry[6:], 4)
	binary.LittleEndian.PutUint32(entry[8:], program)

	code := bytes.NewBuffer([]byte{0xba, 0xf8, 0x03}) // mov dx, 0x3f8: the first serial line
	for _, letter := range []byte(text) {
		code.Write([]byte{0xb0, letter, 0xee}) // mov al, letter; out dx, al
	}
	code.Write([]byte{0xf4, 0xeb, 0xfd}) // hlt; jmp to it
	copy(at(program), code.Bytes())
	return image
}
