package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/host"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/netboot"
	"firstlight.dev/firstlight/daemon/metal/packages"
	"firstlight.dev/firstlight/pxe/bootserver"
	"firstlight.dev/firstlight/pxe/limit"
	"firstlight.dev/firstlight/pxe/metrics"
	"firstlight.dev/firstlight/pxe/server"
)

// ServiceAddresses are the appliance's own addresses at which nodes fetch what they are made of (container images,
// packages, the time), each with the length of its network: that on the provisioning network first, then
// that on baremetal if the site gives the appliance a static IPv4 address there and a node of the site may
// have one too. A leased address is not among them: it may be another's tomorrow. Nor is one on the BMCs'
// network, where no node is.
func ServiceAddresses(s *site.Site) []netip.Prefix {
	p := s.Networks.Provisioning
	all := []netip.Prefix{netip.PrefixFrom(p.Address, p.CIDR.Bits())}
	if b := s.Networks.Baremetal; b != nil && b.Address.Is4() && slices.ContainsFunc(s.Nodes, onBaremetal) {
		all = append(all, netip.PrefixFrom(b.Address, b.CIDR.Bits()))
	}

	return all
}

// registryAddresses are those of the registry: of nodes, and of pods where they reach it at another one.
func registryAddresses(s *site.Site) []netip.Prefix {
	all := ServiceAddresses(s)
	if inner := s.InnerAddress(); inner != s.Networks.Provisioning.Address {
		all = append(all, netip.PrefixFrom(inner, inner.BitLen()))
	}
	return all
}

// onBaremetal tells whether a node may have an address on baremetal: by a link there, or because nothing
// is said of its links, which is DHCP on every NIC.
func onBaremetal(n site.Node) bool {
	return len(n.Links) == 0 || slices.ContainsFunc(n.Links, func(l site.Link) bool {
		return l.Network == host.Baremetal && l.Address.Method != "none"
	})
}

// Addrs are addresses without the lengths of their networks.
func Addrs(all []netip.Prefix) (addrs []netip.Addr) {
	for _, p := range all {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

// mirrorURLs are URLs that answer where nodes are supplied: of the registry and of the packages.
func mirrorURLs(addr netip.Addr) []string {
	return []string{
		"https://" + netip.AddrPortFrom(addr, registryPort).String() + "/v2/",
		"http://" + netip.AddrPortFrom(
			addr, netboot.HTTPPort,
		).String() + "/debian/dists/" + packages.Suite + "/InRelease",
	}
}

// besideMounts are all that is served by HTTP beside the provisioning network: packages and what is named
// by its digest. There is nothing to boot among it.
func (m *Mirror) besideMounts() []server.Mount {
	return append(m.Mounts(), server.Mount{Path: "/debian/", Dir: packagesRoot})
}

// ServePackages serves packages beside the provisioning network, where the boot server has them, and begins
// anew when the site changes the addresses. It is a server of its own: machines go on booting when it ends.
func (m *Mirror) ServePackages(ctx context.Context, up func() bool) error {
	beside := func() ([]netip.Addr, bool) {
		at := Addrs(ServiceAddresses(m.Site()))[1:]
		return at, len(at) > 0
	}
	return rerun.OnChange(ctx, up, beside, m.mirrorPackages)
}

// mirrorPackages serves packages at some addresses until ctx ends.
func (m *Mirror) mirrorPackages(ctx context.Context, at []netip.Addr) (err error) {
	var mounts []bootserver.Mount
	defer func() {
		for _, mount := range mounts {
			err = errors.Join(err, mount.Root.Close())
		}
	}()

	for _, mount := range m.besideMounts() {
		if err := os.MkdirAll(mount.Dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			m.Log.Warn("directory cannot be made", "dir", mount.Dir, "error", err)
		}

		root, err := os.OpenRoot(mount.Dir)
		if err != nil {
			return fmt.Errorf("open directory for %s: %w", mount.Path, err)
		}

		mounts = append(
			mounts, bootserver.Mount{Path: mount.Path, Root: root, Digest: mount.Digest, Open: mount.Open},
		)
	}

	counters := metrics.New(prometheus.NewRegistry()) // the boot server's own are shown
	lines := limit.Log(m.Log.With("part", "packages"))
	group, ctx := errgroup.WithContext(ctx)
	for _, addr := range at {
		s := &bootserver.Server{
			Addr:    netip.AddrPortFrom(addr, netboot.HTTPPort),
			Mounts:  mounts,
			Metrics: counters,
			Log:     lines,
			Known:   m.Known,
		}
		group.Go(func() error { return s.Run(ctx) })
	}

	return group.Wait()
}
