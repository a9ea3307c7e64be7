package ironic

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"

	"firstlight.dev/firstlight/assets/extent"
	"firstlight.dev/firstlight/assets/whole"
)

// agentDir is where the agent in the ramdisk looks for further configuration.
const agentDir = "etc/ironic-python-agent.d"

// RamdiskTrust is an uncompressed cpio archive that teaches the deploy ramdisk to trust a
// root certificate (PEM): appended to the ramdisk it is unpacked over it (Linux,
// Documentation/driver-api/early-userspace/buffer-format.rst). A ramdisk is the same in
// every image; the authority is minted on each appliance.
func RamdiskTrust(root []byte) ([]byte, error) {
	var out bytes.Buffer
	w := cpio.Newc.Writer(&out)
	records := []cpio.Record{
		cpio.Directory("etc", 0o755), cpio.Directory(agentDir, 0o755),
		cpio.StaticFile(agentDir+"/ca.pem", string(root), 0o644),
		cpio.StaticFile(agentDir+"/tls.conf", "[DEFAULT]\ncafile = /"+agentDir+"/ca.pem\n", 0o644),
	}
	for i, r := range records {
		r.Ino = uint64(i + 1)
		if err := w.WriteRecord(r); err != nil {
			return nil, fmt.Errorf("encode the ramdisk's trust: %w", err)
		}
	}
	if err := cpio.WriteTrailer(w); err != nil {
		return nil, fmt.Errorf("encode the ramdisk's trust: %w", err)
	}
	return out.Bytes(), nil
}

// padding is what part of a ramdisk another one may be appended to: the kernel wants 4,
// other boot programs 512.
const padding = 512

// WriteRamdisk makes out from the kernel's or ramdisk's file with more appended, unless it
// is that already, byte for byte. It is replaced whole.
func WriteRamdisk(file string, more []byte, out string) error {
	src, err := extent.Open(os.DirFS("/"), strings.TrimPrefix(file, "/"))
	if err != nil {
		return fmt.Errorf("read ramdisk: %w", err)
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return fmt.Errorf("read ramdisk: %w", err)
	}
	rest := []byte(nil)
	if len(more) > 0 {
		fill := (padding - info.Size()%padding) % padding
		rest = append(make([]byte, fill), more...)
	}
	if have, err := os.Open(out); err == nil {
		same := equal(have, io.MultiReader(src, bytes.NewReader(rest)))
		have.Close()
		if same {
			return nil
		}
	}
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read ramdisk: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return fmt.Errorf("write ramdisk: %w", err)
	}
	return whole.Copy(out, io.MultiReader(src, bytes.NewReader(rest)), 0o644)
}

// equal compares two streams.
func equal(a, b io.Reader) bool {
	bufA, bufB := make([]byte, 1<<16), make([]byte, 1<<16)
	for {
		n, errA := io.ReadFull(a, bufA)
		m, errB := io.ReadFull(b, bufB)
		if n != m || !bytes.Equal(bufA[:n], bufB[:m]) {
			return false
		}
		if errA != nil || errB != nil {
			return ended(errA) && ended(errB)
		}
	}
}

func ended(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
