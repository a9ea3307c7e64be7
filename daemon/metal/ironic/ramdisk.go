package ironic

import (
	"bytes"
	"fmt"

	"github.com/u-root/u-root/pkg/cpio"
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

// RamdiskTail is what is appended to a ramdisk of a size in bytes, so that its agent trusts a root certificate (PEM).
func RamdiskTail(root []byte, size int64) ([]byte, error) {
	trust, err := RamdiskTrust(root)
	if err != nil {
		return nil, err
	}

	fill := (padding - size%padding) % padding
	return append(make([]byte, fill), trust...), nil
}
