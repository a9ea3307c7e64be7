package netboot

import (
	"context"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootserver"
	"firstlight.dev/firstlight/pxe/disc"
	"firstlight.dev/firstlight/pxe/limit"
	"firstlight.dev/firstlight/pxe/metrics"
)

// Discs says what nodes that boot from a disc find on it.
type Discs interface {
	pxe.Machines // the machine whose BMC has an address
	// Arguments are those of the kernel on a machine's disc, and since when it has these. The error is a sentence why the
	// machine has no disc now.
	Arguments(m pxe.Machine) (args []string, since time.Time, err error)
}

// discStall is how long a BMC may take no megabyte of a disc: one that has its server wait while it starts takes none.
const discStall = 10 * time.Minute

// DiscURL is where BMCs read the discs of their nodes; "" if the site has no node that boots from one.
func (s *Server) DiscURL() string {
	addr := s.Site().DiscAddress()
	if !addr.IsValid() {
		return ""
	}
	return "http://" + netip.AddrPortFrom(addr, DiscPort).String() + pxe.DiscPath
}

// ServeDiscs serves BMCs the discs of their nodes from the moment that up says so, at the appliance's address on their
// network, as long as the site has such nodes.
func (s *Server) ServeDiscs(ctx context.Context, up func() bool) error {
	addr := func() (netip.Addr, bool) { a := s.Site().DiscAddress(); return a, a.IsValid() }
	return rerun.OnChange(ctx, up, addr, func(ctx context.Context, addr netip.Addr) error {
		root, since := os.DirFS(stick.LowerDir), time.Now()
		server := &bootserver.Server{
			Addr:     netip.AddrPortFrom(addr, DiscPort),
			Machines: s.Discs,
			Record:   &s.traces,
			Disc: func(_ context.Context, m pxe.Machine) (bootserver.File, fs.FileInfo, error) {
				return s.openDisc(root, since, m)
			},
			Metrics: metrics.New(prometheus.NewRegistry()), // what a BMC reads is in the traces
			Log:     limit.Log(s.Log.With("part", "discs")),
			Stall:   discStall,
			Known:   func(a netip.Addr) bool { _, ok := s.Discs.MachineAt(a); return ok },
		}
		return server.Run(ctx)
	})
}

// openDisc puts the disc of a machine together, of what the stick has, whose root is given. Nothing of it is written to
// DATA: kernel, ramdisk and tail are where the boot server has them, too, which began to serve them at a time.
func (s *Server) openDisc(root fs.FS, since time.Time, m pxe.Machine) (bootserver.File, fs.FileInfo, error) {
	args, made, err := s.Discs.Arguments(m)
	if err != nil {
		return nil, nil, err
	}

	open := ramdiskOpener(root, s.ramdiskTail, since)
	kernel, kernelInfo, err := open(nil, "kernel")
	if err != nil {
		return nil, nil, fmt.Errorf("open kernel: %w", err)
	}

	ramdisk, ramdiskInfo, err := open(nil, "initramfs")
	if err != nil {
		kernel.Close() // it was read only
		return nil, nil, fmt.Errorf("open ramdisk: %w", err)
	}

	layout, err := s.layout.of(root, kernelInfo.Size(), ramdiskInfo.Size())
	if err == nil {
		var whole bootserver.File
		if whole, err = layout.Disc(kernel, ramdisk, args); err == nil {
			return whole, tailedInfo{kernelInfo, layout.Size(), made}, nil
		}
	}

	kernel.Close()
	ramdisk.Close()
	return nil, nil, err
}

// discLayout is kept from one disc to the next: sizes change with the stick and its authority alone.
type discLayout struct {
	mu              sync.Mutex
	layout          *disc.Layout
	kernel, ramdisk int64
}

func (d *discLayout) of(root fs.FS, kernel, ramdisk int64) (*disc.Layout, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.layout != nil && d.kernel == kernel && d.ramdisk == ramdisk {
		return d.layout, nil
	}

	shim, err := fs.ReadFile(root, relative(ramdiskDir+"/shimx64.efi"))
	if err != nil {
		return nil, fmt.Errorf("read boot loader: %w", err)
	}
	grub, err := fs.ReadFile(root, relative(ramdiskDir+"/gcdx64.efi"))
	if err != nil {
		return nil, fmt.Errorf("read boot loader: %w", err)
	}

	layout, err := disc.NewLayout(disc.Loaders{Shim: shim, GRUB: grub}, kernel, ramdisk)
	if err != nil {
		return nil, err
	}

	d.layout, d.kernel, d.ramdisk = layout, kernel, ramdisk
	return layout, nil
}

// fixedMachines are nodes that boot from discs, which have their addresses from the site. One counts as such while the
// kernel has just spoken to its MAC at its address.
type fixedMachines struct {
	mac  func(netip.Addr) site.MAC // that a node has an address by; "": none
	seen pxe.Machines
}

// MachineAt implements pxe.Machines.
func (f fixedMachines) MachineAt(addr netip.Addr) (pxe.Machine, bool) {
	mac := f.mac(addr.Unmap())
	if mac == "" {
		return pxe.Machine{}, false
	}

	m, ok := f.seen.MachineAt(addr)
	if !ok || site.MAC(m.MAC.String()) != mac {
		return pxe.Machine{}, false
	}
	return m, true
}
