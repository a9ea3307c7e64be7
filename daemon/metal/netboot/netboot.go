// Package netboot serves the networks of nodes before anything else of them is known: DHCP, TFTP and HTTP on the
// provisioning network, which they boot from, and DHCP on the other networks where the site asks for it.
package netboot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/appliance/metrics"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/capture"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/lease"
	"firstlight.dev/firstlight/pxe/server"
)

// What others mount, read and ask.
const (
	HTTPPort  = 6180                                // of the boot server
	DiscPort  = 6181                                // of the server of discs
	HTTPRoot  = stick.DataDir + "/http"             // what machines load; Ironic's conductor writes there
	ImageDir  = "/usr/share/firstlight/images/os"   // operating systems of the stick, each with its digest beside it
	LeaseFile = stick.RunDir + "/dhcp/dhcpd.leases" // what the DHCP server writes for readers, in a directory that pods can mount
)

const (
	ramdiskDir = "/usr/share/firstlight/ramdisk"
	leaseDir   = stick.DataDir + "/dhcp"

	// captureDir holds the packets of each machine's last boots. It lies in memory, as the boot traces do: a
	// rack boots at once, just when etcd needs the stick's writes, and a boot is some 12 KiB.
	captureDir = stick.RunDir + "/captures"
)

// bootDirs hold the boot programs that nodes load first: iPXE's, and the signed ones.
func bootDirs() []string { return []string{"/usr/lib/ipxe", ramdiskDir} }

// Server is what answers on the provisioning network.
type Server struct {
	Log     *slog.Logger
	Site    func() *site.Site // with its defaults
	Metrics *metrics.Parts    // gets the counters

	Interface func(role string) string // name of the interface on a network; nil: the role

	static staticAddresses

	Booter      func() pxe.Booter                // says what machines boot; asked whenever serving begins
	RamdiskTail func(size int64) ([]byte, error) // what is served after the ramdisk, which has size bytes
	Minter      pxe.Minter                       // makes the tokens of boots
	Mounts      []server.Mount                   // what others have served, besides images, ramdisk and HTTPRoot
	Discs       Discs                            // says what is on the discs of nodes that boot from one

	traces  boottrace.Recorder
	layout  discLayout
	serving atomic.Pointer[server.Server]
}

// Stage is the fact that machines can boot.
func (s *Server) Stage() bringup.Stage {
	return bringup.Stage{
		Name:  "wire-serving",
		Title: "DHCP and network boot are served",
		Fact:  "DHCP, TFTP and HTTP answer on the provisioning network, with a ramdisk that trusts this appliance",
		Why: "Ironic hands out what is served here. It is served from early on, whatever becomes of Kubernetes: " +
			"a server in service that boots from the network must be told to boot its disk.",
		Done: s.checkServing,
	}
}

// FileURL is the address of the boot server, without a slash at its end.
func (s *Server) FileURL() string {
	return "http://" + netip.AddrPortFrom(s.Site().Networks.Provisioning.Address, HTTPPort).String()
}

// Run answers machines on the provisioning network from the moment that it has its address, and starts again when
// the site changes the network.
func (s *Server) Run(ctx context.Context, up func() bool) error {
	if !rerun.Await(ctx, up) {
		return nil
	}

	dirs := []string{HTTPRoot, leaseDir, filepath.Dir(LeaseFile), ramdiskDir, ImageDir}
	for _, m := range s.Mounts {
		dirs = append(dirs, m.Dir)
	}

	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			s.Log.Warn("directory cannot be made", "dir", dir, "error", err)
		}
	}

	network := func() (*site.Network, bool) { return s.Site().Networks.Provisioning, true }
	return rerun.OnChange(ctx, up, network, func(ctx context.Context, _ *site.Network) error {
		had := s.Site()
		serving, err := server.New(s.config(had))
		if err != nil {
			return err
		}

		s.serving.Store(serving)
		if serving.DHCP() != nil {
			go s.updateReservations(ctx, serving.DHCP(), had)
		}

		return serving.Run(ctx)
	})
}

// updateReservations tells the DHCP server the nodes of a site that is edited, as long as its network stays the same:
// what serves must not restart for one more node while others load their images.
func (s *Server) updateReservations(ctx context.Context, d *dhcp.Server, had *site.Site) {
	conf := provisioningDHCP(had)
	rerun.Await(ctx, func() bool {
		now := s.Site()
		if !reflect.DeepEqual(had.Networks.Provisioning, now.Networks.Provisioning) {
			return true // another server comes
		}

		next := provisioningDHCP(now)
		if next == nil || reflect.DeepEqual(conf, next) {
			return false
		}

		conf = next
		if err := d.SetReservations(next.Reservations, next.Subnets); err != nil {
			s.Log.Error("DHCP continues with the nodes it knew", "error", err)
		}

		return false
	})
}

// config is what the services on the provisioning network do for a site.
func (s *Server) config(of *site.Site) server.Config {
	n, stickRoot := of.Networks.Provisioning, os.DirFS(stick.LowerDir)
	nic := interfaceOf(s.Interface, host.Provisioning)
	return server.Config{
		Interface: nic,
		Addr:      n.Address,
		HTTPPort:  HTTPPort,
		BootDirs:  bootDirs(),
		Mounts: append(slices.Clone(s.Mounts),
			server.Mount{Path: "/images/", Dir: ImageDir, Open: imageOpener(stickRoot)},
			server.Mount{Path: "/ramdisk/", Dir: ramdiskDir, Open: ramdiskOpener(stickRoot, s.ramdiskTail, time.Now())},
			server.Mount{Path: "/", Dir: HTTPRoot}),
		Registry: s.Metrics.NewRegistry("pxe"),
		Booter:   s.Booter(),
		Minter:   s.Minter,
		Machines: arpTable(nic), // unless our DHCP server gives the addresses
		Fixed:    fixedMachines{mac: func(a netip.Addr) site.MAC { return s.static.discMAC(a, s.Site) }, seen: arpTable(nic)},
		Traces:   &s.traces,
		Log:      s.Log.With("part", "pxe"),
		DHCP:     provisioningDHCP(of),
		Captures: captures(n),
	}
}

// captures is where packets of boots are kept; "" for none, as of IPv6 they are not read.
func captures(n *site.Network) string {
	if n.Address.Is6() {
		return ""
	}
	return captureDir
}

// interfaceOf is the name of the interface on a network.
func interfaceOf(find func(role string) string, role string) string {
	if find == nil {
		return role
	}
	return find(role)
}

func (s *Server) checkServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, name := range []string{"kernel", "initramfs"} {
		url := s.FileURL() + "/ramdisk/" + name
		request, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
		if err != nil {
			return err
		}

		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return bringup.Wait("the boot server to answer: %v", err)
		}

		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is answered with %s", url, response.Status)
		}
	}

	return nil
}

// Traces are what each machine did on its way.
func (s *Server) Traces() []boottrace.Trace {
	return s.traces.List()
}

// Packets are what a machine asked by DHCP and TFTP in its last boot from the provisioning network, and was answered.
func (*Server) Packets(mac string) ([]capture.Exchange, error) {
	who, err := net.ParseMAC(mac)
	if err != nil {
		return nil, fmt.Errorf("find packets of %q: %w", mac, err)
	}
	return capture.ReadBoot(captureDir, who)
}

// MachineAt implements pxe.Machines: the machine on the provisioning network with an address.
func (s *Server) MachineAt(addr netip.Addr) (pxe.Machine, bool) {
	if serving := s.serving.Load(); serving != nil {
		return serving.MachineAt(addr)
	}
	return pxe.Machine{}, false
}

// Leases are the addresses given by DHCP on the provisioning network, by MAC.
func (s *Server) Leases() map[site.MAC]netip.Addr {
	all := map[site.MAC]netip.Addr{}
	if serving := s.serving.Load(); serving != nil && serving.DHCP() != nil {
		for _, l := range serving.DHCP().Leases() {
			if l.State == "active" {
				all[site.MAC(strings.ToLower(l.MAC))] = l.Addr
			}
		}
	}
	return all
}

// ActiveLeases are those that machines have now, with their times; none while the appliance is not the DHCP server.
func (s *Server) ActiveLeases() []lease.ListedLease {
	serving := s.serving.Load()
	if serving == nil || serving.DHCP() == nil {
		return nil
	}
	return filterActive(serving.DHCP().Leases())
}

func filterActive(all []lease.ListedLease) []lease.ListedLease {
	return slices.DeleteFunc(all, func(l lease.ListedLease) bool { return l.State != lease.Active.String() })
}

// Notes are sentences for people about what nothing waits for: a foreign DHCP server that is ignored.
func (s *Server) Notes() []string {
	if st := s.DHCPStatus(); st.Phase == dhcp.PhaseServing && len(st.Foreign) > 0 {
		return []string{st.Text}
	}
	return nil
}

// DHCPStatus is what the DHCP server of the provisioning network does now.
func (s *Server) DHCPStatus() dhcp.Status {
	serving := s.serving.Load()
	if serving == nil || serving.DHCP() == nil {
		return dhcp.Status{Phase: dhcp.PhaseProbing}
	}
	return serving.DHCP().Status()
}
