package simulator

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

// SwitchOnFromDisc is SwitchOn with the image of a disc in a drive, which the firmware starts from.
func (h *Server) SwitchOnFromDisc(image string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.override, h.disc = override{}, image
	h.power(true)
}

// runDisc is what the host does from power on with a disc. Its ramdisk asks nobody for its address.
func (h *Server) runDisc(r *powerOnPeriod, image string) {
	if !sleep(r.ctx, h.simulator.config.BootTime) {
		return
	}

	args, trust, err := readDisc(image)
	if err != nil {
		h.logEvent("boot: the disc does not start: %v", err)
		h.setState(r, Nothing, nil)
		return
	}

	address, err := netip.ParsePrefix(args["firstlight.address"])
	if err == nil {
		err = h.setAddress(address.Addr())
	}
	if err != nil {
		h.logEvent("boot: no address from the disc: %v", err)
		return
	}

	h.runRamdisk(r, args, trust)
}

// kernelLine is how GRUB's configuration on a disc begins to name the kernel; its arguments follow.
const kernelLine = "linux /vmlinuz "

// readDisc reads the arguments of the kernel on a disc, and what the agent of its ramdisk trusts.
func readDisc(image string) (args map[string]string, trust *x509.CertPool, err error) {
	text, err := os.ReadFile(image)
	if err != nil {
		return nil, nil, err
	}

	_, after, found := bytes.Cut(text, []byte(kernelLine))
	if !found {
		return nil, nil, errors.New("it starts no kernel")
	}

	line, _, _ := bytes.Cut(after, []byte(";"))
	args = map[string]string{}
	for _, word := range strings.Fields(string(line)) {
		if key, value, ok := strings.Cut(word, "="); ok {
			args[key] = value
		}
	}

	f, err := os.Open(image)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()

	volume, err := iso9660.Read(file.New(f, true), int64(len(text)), 0, 2048)
	if err != nil {
		return nil, nil, fmt.Errorf("read it: %w", err)
	}
	ramdisk, err := volume.ReadFile("initrd")
	if err != nil {
		return nil, nil, fmt.Errorf("read its ramdisk: %w", err)
	}

	trust = x509.NewCertPool()
	for _, root := range trustedCerts(ramdisk[max(0, len(ramdisk)-65536):]) {
		trust.AppendCertsFromPEM(root)
	}
	return args, trust, nil
}
