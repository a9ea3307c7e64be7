// Package server runs the boot services of one provisioning network together: DHCP, TFTP
// and HTTP on one interface, with one Booter, one record of machines, one set of metrics.
package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/bootserver"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/capture"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/grub"
	"firstlight.dev/firstlight/pxe/limit"
	"firstlight.dev/firstlight/pxe/metrics"
	"firstlight.dev/firstlight/pxe/tftp"
)

// DefaultHTTPPort is where HTTP is served unless Config says otherwise: 80 is left to
// whatever else the machine shows to people.
const DefaultHTTPPort = 8080

// Config says what is served where. Booter and Log are required.
type Config struct {
	Interface string     // the provisioning interface; DHCP and TFTP are bound to it
	Addr      netip.Addr // ours there; all is served by its family of IP alone
	HTTPPort  uint16     // 0: DefaultHTTPPort
	TFTPPort  uint16     // 0: 69

	// DHCP is how addresses are given; nil: DHCP is somebody else's. Interface, Server and
	// HTTP are filled in from here.
	DHCP *dhcp.Config

	BootDirs []string // directories with the boot programs, searched in order
	Mounts   []Mount  // further files by HTTP; the one at "/" holds the conductor's scripts

	Captures string // directory for the packets of each machine's last boots; "": they are not kept

	Booter   pxe.Booter
	Minter   pxe.Minter            // see bootserver.Server; may be nil
	Machines pxe.Machines          // who has an address, where another DHCP server gives them; may be nil
	Fixed    pxe.Machines          // who has an address without DHCP, whoever gives the others; may be nil
	Traces   *boottrace.Recorder   // nil: its own
	Registry prometheus.Registerer // nil: metrics are counted and not shown
	Log      *slog.Logger
}

// Mount is a directory shown at a path, which begins and ends with "/".
type Mount struct {
	Path   string
	Dir    string
	Digest func(name string) string // see bootserver.Mount; may be nil
	// Open is bootserver.Mount's; may be nil.
	Open func(root *os.Root, name string) (bootserver.File, fs.FileInfo, error)
}

// Server is the services, ready to Run.
type Server struct {
	conf   Config
	traces *boottrace.Recorder
	files  *bootfile.Set
	roots  []*os.Root
	dhcp   *dhcp.Server
	tftp   *tftp.Server
	http   *bootserver.Server

	machines pxe.Machines // nil: no client is known by its address
}

// New opens the directories and the leases. What it opened is closed when Run returns;
// a Server that is never run is Closed.
func New(c Config) (*Server, error) {
	s := &Server{conf: c, traces: c.Traces}
	if s.traces == nil {
		s.traces = &boottrace.Recorder{}
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) open() error {
	c := &s.conf
	if !c.Addr.IsValid() {
		return fmt.Errorf("there is no address; give this machine's address on %s", c.Interface)
	}

	if c.HTTPPort == 0 {
		c.HTTPPort = DefaultHTTPPort
	}

	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}

	counters := metrics.New(c.Registry)
	base := "http://" + netip.AddrPortFrom(c.Addr, c.HTTPPort).String()
	var err error
	if s.files, err = bootfile.OpenSet(c.BootDirs, s.bootNames()); err != nil {
		return err
	}

	if c.Addr.Is4() { // by IPv6 no machine is told to load GRUB
		config, err := grub.Config(base)
		if err != nil {
			return err
		}
		s.files.AddText(pxe.GRUBConfig, config)
	}

	if missing := s.files.MissingFiles(); len(missing) > 0 {
		c.Log.Warn("boot programs are missing: machines that need them will not boot", "files", missing)
	}

	machines := c.Machines
	if c.DHCP != nil {
		d := *c.DHCP
		d.Interface, d.Server, d.HTTP = c.Interface, c.Addr, base
		s.dhcp, err = dhcp.New(d, dhcp.Deps{
			Booter: c.Booter,
			Events: dhcp.EventRecorder{Metrics: counters, Traces: s.traces, Log: c.Log},
			Log:    c.Log,
		})
		if err != nil {
			return fmt.Errorf("prepare DHCP: %w", err)
		}

		if d.Mode != dhcp.ModeProxy || machines == nil {
			machines = s.dhcp
		}
	}

	if c.Fixed != nil {
		machines = withFixed{machines, c.Fixed}
	}

	s.machines = machines
	lines := limit.Log(c.Log) // whoever asks decides how many there are
	s.tftp = &tftp.Server{
		Addr:     netip.AddrPortFrom(c.Addr, c.TFTPPort),
		Device:   c.Interface,
		Files:    s.files,
		Machines: machines,
		Booter:   c.Booter,
		Record:   s.traces,
		Metrics:  counters,
		Log:      lines,
	}
	// HTTP is bound to the address, not to the interface: the conductor on this very
	// machine looks at the images it hands out, and its packets go through lo.
	s.http = &bootserver.Server{
		Addr:     netip.AddrPortFrom(c.Addr, c.HTTPPort),
		Base:     base,
		Files:    s.files,
		Machines: machines,
		Minter:   c.Minter,
		Booter:   c.Booter,
		Record:   s.traces,
		Metrics:  counters,
		Log:      lines,
	}
	if s.dhcp != nil {
		s.http.Known, s.tftp.Known = s.dhcp.IsKnown, s.dhcp.IsKnown
	}

	for _, m := range c.Mounts {
		if !strings.HasPrefix(m.Path, "/") || !strings.HasSuffix(m.Path, "/") {
			return fmt.Errorf("mount path %q does not begin and end with a slash", m.Path)
		}

		root, err := os.OpenRoot(m.Dir)
		if err != nil {
			return fmt.Errorf("open directory for %s: %w", m.Path, err)
		}

		s.roots = append(s.roots, root)
		s.http.Mounts = append(
			s.http.Mounts, bootserver.Mount{Path: m.Path, Root: root, Digest: m.Digest, Open: m.Open},
		)
	}

	return nil
}

// withFixed knows machines by the addresses that they have without DHCP, and by those that they were given. The latter
// may be nil.
type withFixed struct{ given, fixed pxe.Machines }

// MachineAt implements pxe.Machines.
func (w withFixed) MachineAt(addr netip.Addr) (pxe.Machine, bool) {
	if m, ok := w.fixed.MachineAt(addr); ok || w.given == nil {
		return m, ok
	}
	return w.given.MachineAt(addr)
}

// bootNames are the files any DHCP answer can name: nothing else is served as a boot program.
func (s *Server) bootNames() []string {
	list := dhcp.DefaultFiles()
	if s.conf.DHCP != nil && s.conf.DHCP.Files != nil {
		list = s.conf.DHCP.Files
	}

	var names []string
	for _, f := range list {
		for _, name := range f.Names() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}

	return names
}

// Run serves until ctx ends, or until one of the services cannot go on: then all end
// and the error names it.
func (s *Server) Run(ctx context.Context) error {
	defer func() { _ = s.closeFiles() }()
	services := []struct {
		name string
		run  func(context.Context) error
	}{
		{"http", s.http.Run}, // before DHCP sends anybody there
		{"tftp", s.tftp.Run},
	}
	if s.dhcp != nil {
		services = append(services, struct {
			name string
			run  func(context.Context) error
		}{"dhcp", s.dhcp.Run})
	}

	if s.conf.Captures != "" {
		recorder := &capture.Recorder{Interface: s.conf.Interface, Dir: s.conf.Captures, Log: s.conf.Log}
		services = append(services, struct {
			name string
			run  func(context.Context) error
		}{"captures", recorder.Run})
	}

	group, ctx := errgroup.WithContext(ctx)
	for _, service := range services {
		group.Go(func() error {
			if err := service.run(ctx); err != nil {
				return fmt.Errorf("serve %s: %w", service.name, err)
			}
			return nil
		})
	}

	return group.Wait()
}

// Close closes what New opened; only for a Server that never ran.
func (s *Server) Close() error {
	var err error
	if s.dhcp != nil {
		err = s.dhcp.Close()
	}
	return errors.Join(err, s.closeFiles())
}

func (s *Server) closeFiles() error {
	var errs []error
	for _, root := range s.roots {
		errs = append(errs, root.Close())
	}

	if s.files != nil {
		errs = append(errs, s.files.Close())
	}

	return errors.Join(errs...)
}

// Traces is where each machine last was; it is also an http.Handler.
func (s *Server) Traces() *boottrace.Recorder { return s.traces }

// MachineAt implements pxe.Machines: the machine with an address, by whoever gave it.
func (s *Server) MachineAt(addr netip.Addr) (pxe.Machine, bool) {
	if s.machines == nil {
		return pxe.Machine{}, false
	}
	return s.machines.MachineAt(addr)
}

// DHCP is the running DHCP server: its status, its leases, its reservations. Nil without DHCP.
func (s *Server) DHCP() *dhcp.Server { return s.dhcp }
