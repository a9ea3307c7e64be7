package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/ironic"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/server"
)

// bootDirs hold the boot programs that nodes load first.
func bootDirs() []string { return []string{"/usr/lib/ipxe"} }

// captureDir holds the packets of each machine's last boots. It lies in memory, as the records do: a
// rack boots at once, just when etcd needs the stick's writes, and a boot is some 12 KiB.
const captureDir = stick.RunDir + "/captures"

// serve answers nodes on the provisioning network from the moment that it has its address,
// and begins anew when the site changes it.
func (m *metal) serve(ctx context.Context, up func() bool) error {
	if !rerun.Await(ctx, up) {
		return nil
	}
	for _, dir := range []string{httpRoot, leaseDir, filepath.Dir(leaseFile), ramdiskDir, nodeImages, artifactImages, broughtDir, digestsDir, packagesDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			m.log.Warn("directory cannot be made", "dir", dir, "error", err)
		}
	}
	if err := m.hosts.LoadBackups(); err != nil {
		return err
	}
	network := func() (*site.Network, bool) { return m.site().Networks.Provisioning, true }
	return rerun.OnChange(ctx, up, network, func(ctx context.Context, _ *site.Network) error {
		had := m.site()
		m.hosts.Ramdisk = m.ramdisk()
		s, err := server.New(m.bootServicesConfig(had))
		if err != nil {
			return err
		}
		m.serving.Store(s)
		if s.DHCP() != nil {
			go m.updateReservations(ctx, s.DHCP(), had)
		}
		return s.Run(ctx)
	})
}

// updateReservations tells the DHCP server the nodes of a site that is edited, as long as its network stays the same:
// what serves must not restart for one more node while others load their images.
func (m *metal) updateReservations(ctx context.Context, s *dhcp.Server, had *site.Site) {
	conf := provisioningDHCP(had)
	rerun.Await(ctx, func() bool {
		now := m.site()
		if !reflect.DeepEqual(had.Networks.Provisioning, now.Networks.Provisioning) {
			return true // another server comes
		}
		next := provisioningDHCP(now)
		if next == nil || reflect.DeepEqual(conf, next) {
			return false
		}
		conf = next
		if err := s.SetReservations(next.Reservations, next.Subnets); err != nil {
			m.log.Error("DHCP goes on with the nodes it knew", "error", err)
		}
		return false
	})
}

// bootServicesConfig is what the services on the provisioning network do for a site.
func (m *metal) bootServicesConfig(s *site.Site) server.Config {
	n := s.Networks.Provisioning
	return server.Config{
		Interface: "provisioning", Addr: n.Address, HTTPPort: httpPort, BootDirs: bootDirs(),
		Mounts: append(packageMounts(),
			server.Mount{Path: "/images/", Dir: nodeImages, Open: imageOpener(os.DirFS(stick.LowerDir))},
			server.Mount{Path: artifact.ImagesPath, Dir: artifactImages, Digest: imageDigest},
			server.Mount{Path: "/ramdisk/", Dir: ramdiskDir, Open: ramdiskOpener(os.DirFS(stick.LowerDir), m.ramdiskTail, time.Now())},
			server.Mount{Path: "/", Dir: httpRoot}),
		Registry: m.metricParts.NewRegistry("pxe"), Booter: m.hosts, Log: m.log.With("part", "pxe"),
		DHCP: provisioningDHCP(s), Captures: captureDir,
	}
}

// watch keeps the picture of the hosts as the API has it, once there are such kinds.
func (m *metal) watch(ctx context.Context, up func() bool) error {
	if !rerun.Await(ctx, up) {
		return nil
	}
	config, err := m.kube.REST()
	if err != nil {
		return err
	}
	if err := m.hosts.Watch(ctx, config, m.changed); err != nil {
		return fmt.Errorf("watch hosts: %w", err)
	}
	return nil
}

// reconcileNodes takes every node from step to step.
func (m *metal) reconcileNodes(ctx context.Context, up func() bool) error {
	if !rerun.Await(ctx, up) {
		return nil
	}
	s, err := m.reconciler()
	if err != nil {
		return err
	}
	return s.Run(ctx, m.changed, m.nodeObjects, m.setProgress)
}

// pruneDeployLogs keeps the logs of failed deployments from filling DATA.
func (m *metal) pruneDeployLogs(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := ironic.PruneOldest(filepath.Join(ironicState, ironic.LogDir), 100); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Minute):
		}
	}
	return nil
}
