package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/packages"
	"firstlight.dev/firstlight/daemon/metal/registry"
	"firstlight.dev/firstlight/pxe/server"
)

const (
	imagesDir    = "/usr/share/firstlight/images"
	packagesDir  = "/usr/share/firstlight/packages"
	pushedDir    = stick.DataDir + "/registry"              // container images that were pushed to the appliance
	broughtDir   = artifactDir + "/" + artifact.PackagesDir // .deb files that were brought to it
	digestsDir   = artifactDir + "/" + artifact.DigestsDir
	packagesKey  = secretDir + "/packages.key"
	packagesRoot = httpRoot + "/debian" // gets the index
	registryPort = assets.RegistryPort
)

// packageMounts are where the boot server has packages, besides the index below its root.
func packageMounts() []server.Mount {
	return []server.Mount{
		{Path: "/debian/pool/", Dir: packagesDir},
		{Path: "/debian/local/", Dir: broughtDir},
		{Path: artifact.DigestsPath, Dir: digestsDir, Digest: func(name string) string { return name }},
	}
}

func packagePools() []packages.Pool {
	return []packages.Pool{{Dir: packagesDir, Path: "pool", Index: packagesDir + "/Packages"}, {Dir: broughtDir, Path: "local", Owner: artifact.PackageOwner}}
}

func (m *metal) registryAddr() netip.AddrPort { return netip.AddrPortFrom(m.addr(), registryPort) }

// serveImages gives nodes their container images from the moment that their networks have the appliance's
// addresses, and begins anew when the site changes those.
func (m *metal) serveImages(ctx context.Context, up func() bool) error {
	addresses := func() ([]netip.Prefix, bool) { return serviceAddresses(m.site()), true }
	return rerun.OnChange(ctx, up, addresses, func(ctx context.Context, at []netip.Prefix) error {
		s, err := m.newRegistry(at)
		if err != nil {
			return err
		}
		return s.Run(ctx)
	})
}

func (m *metal) newRegistry(at []netip.Prefix) (*registry.Server, error) {
	authority, err := m.ca()
	if err != nil {
		return nil, err
	}
	key, err := packages.OpenKey(packagesKey)
	if err != nil {
		return nil, err
	}
	return registry.New(registry.Config{
		Addrs: at, Port: registryPort, Layout: imagesDir, Store: pushedDir, Writers: authority.Pool(), Registry: m.metricParts.NewRegistry("registry"), Log: m.log.With("part", "registry"),
		Public: map[string][]byte{"/ca.crt": authority.PEM(), "/packages.asc": key.Public()},
		Certificate: func() (tls.Certificate, error) {
			pair, _, err := authority.Issue("registry", ca.Names{CommonName: "registry", Addrs: addrsOf(at)})
			if err != nil {
				return tls.Certificate{}, err
			}
			return tls.X509KeyPair(pair.Cert, pair.Key)
		},
	})
}

// mirrorStage holds that nodes can fetch what they are made of.
func (m *metal) mirrorStage() bringup.Stage {
	return bringup.Stage{
		Name: "supplies-served",
		Fact: "nodes are served every container image and every package of the stick, on each network where the appliance supplies them",
		Why:  "Clusters are installed from them. Before the site is handed over, so that no installer waits.",
		Done: m.mirrorDone, Do: m.mirrorDo, // asked often: what is brought enters the index then
	}
}

// mirrorDo writes the index of packages.
func (m *metal) mirrorDo(ctx context.Context, report bringup.Report) error {
	key, err := packages.OpenKey(packagesKey)
	if err != nil {
		return err
	}
	report("writing the index of packages")
	found := poolState()
	r := packages.Repository{Dir: packagesRoot, Pools: packagePools(), Key: key, Now: time.Now, LeftOut: func(file, why string) {
		m.log.Warn("package is not offered", "file", file, "why", why)
	}}
	if _, err := r.Write(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.indexed = found
	return nil
}

// poolState tells pools apart without reading their packages.
func poolState() string {
	var b strings.Builder
	for _, p := range packagePools() {
		files, err := os.ReadDir(p.Dir)
		fmt.Fprintln(&b, p.Dir, err == nil)
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				fmt.Fprintln(&b, info.Name(), info.Size(), info.ModTime().UnixNano())
			}
		}
	}
	return b.String()
}

func (m *metal) mirrorDone(ctx context.Context) error {
	m.mu.Lock()
	indexed := m.indexed
	m.mu.Unlock()
	if indexed != poolState() {
		return errors.New("the index of packages is not that of the packages that are here")
	}
	authority, err := m.ca()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, addr := range addrsOf(serviceAddresses(m.site())) {
		for _, url := range mirrorURLs(addr) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			response, err := client.Do(request)
			if err != nil {
				return bringup.Wait("%s to answer: %v", url, err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("%s is answered with %s", url, response.Status)
			}
		}
	}
	return nil
}
