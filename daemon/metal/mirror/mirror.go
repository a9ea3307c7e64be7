// Package mirror gives nodes what they are made of, wherever they are: container images, Debian packages and the time.
package mirror

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/host/timeserver"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/daemon/metal/netboot"
	"firstlight.dev/firstlight/daemon/metal/packages"
	"firstlight.dev/firstlight/daemon/metal/packages/kubernetes"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/bootserver"
	"firstlight.dev/firstlight/pxe/server"
)

// PackagesKey is the file of the key that signs the index of packages.
const PackagesKey = vault.SecretDir + "/packages.key"

const (
	packagesDir  = "/usr/share/firstlight/packages"
	broughtDir   = artifact.Dir + "/" + artifact.PackagesDir // .deb files that were brought to it
	digestsDir   = artifact.Dir + "/" + artifact.DigestsDir
	packagesRoot = netboot.HTTPRoot + "/debian" // gets the index
	nodesDir     = "/run/firstlight/packages"   // what is kept of the packages of Kubernetes
	registryPort = assets.RegistryPort
)

// Mirror serves at the appliance's own addresses, which move when the site is edited.
type Mirror struct {
	Log   *slog.Logger
	Site  func() *site.Site // with its defaults
	Vault *vault.Vault

	// Known reports whether an address is that of a node of the site, which is served whatever others do; KnownAddrs
	// are all of them.
	Known      func(netip.Addr) bool
	KnownAddrs func() []netip.Addr
	// OwnersAt says whose uploaded container images the machines at addresses get; nil: it is not known yet.
	OwnersAt func() map[netip.Addr]string

	// StartRegistry starts the registry's process as registry.User; systemd starts it again when it ends.
	// Nil: someone else runs it, as root.
	StartRegistry func(ctx context.Context) error

	// Kubernetes are the packages of which machines become nodes.
	Kubernetes *kubernetes.Pool

	// Owners are those of clusters: each has a suite of packages, even an empty one. May be nil.
	Owners func() []string

	mu      sync.Mutex
	indexed string // the packages that the index was written for
}

// KubernetesPool is made of the programs that the stick has for nodes.
func KubernetesPool() *kubernetes.Pool {
	return &kubernetes.Pool{Root: os.DirFS(stick.LowerDir), Dir: nodesDir}
}

// Mounts are where the boot server has packages, besides the index below its root.
func (m *Mirror) Mounts() []server.Mount {
	return []server.Mount{
		{Path: "/debian/pool/", Dir: packagesDir},
		{Path: "/debian/kubernetes/", Dir: nodesDir, Open: m.openKubernetes},
		{Path: "/debian/local/", Dir: broughtDir},
		{Path: artifact.DigestsPath, Dir: digestsDir, Digest: func(name string) string { return name }},
	}
}

// openKubernetes opens one of the packages of Kubernetes.
func (m *Mirror) openKubernetes(_ *os.Root, name string) (bootserver.File, fs.FileInfo, error) {
	file, err := m.Kubernetes.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, bootfile.ErrNotFound
	}
	if err != nil {
		m.Log.Warn("package cannot be read", "file", name, "error", err)
		return nil, nil, bootfile.ErrRead
	}

	info, err := file.Stat()
	if err != nil {
		return nil, nil, errors.Join(bootfile.ErrRead, file.Close())
	}

	return file, info, nil
}

func packagePools() []packages.Pool {
	return []packages.Pool{
		{Dir: packagesDir, Path: "pool", Index: packagesDir + "/Packages"},
		{Dir: nodesDir, Path: "kubernetes", Index: nodesDir + "/" + kubernetes.IndexName},
		{Dir: broughtDir, Path: "local", Owner: artifact.PackageOwner},
	}
}

// RegistryAddr is where pods reach the registry.
func (m *Mirror) RegistryAddr() netip.AddrPort {
	return netip.AddrPortFrom(m.Site().InnerAddress(), registryPort)
}

// ServeTime answers time requests wherever nodes get images and packages, with source's opinion of our clock.
func (m *Mirror) ServeTime(ctx context.Context, up func() bool, source func() timeserver.Source) error {
	addresses := func() ([]netip.Prefix, bool) { return ServiceAddresses(m.Site()), true }
	return rerun.OnChange(ctx, up, addresses, func(ctx context.Context, at []netip.Prefix) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, addr := range Addrs(at) {
			s := &timeserver.Server{Addr: netip.AddrPortFrom(addr, 123), Source: source, Log: m.Log}
			group.Go(func() error { return s.Run(ctx) })
		}
		return group.Wait()
	})
}

// Trust is what nodes know the appliance by: its certificate, PEM, and the key of its packages, armored.
func (m *Mirror) Trust() (certificate, key []byte, err error) {
	authority, err := m.Vault.Authority()
	if err != nil {
		return nil, nil, err
	}

	signing, err := packages.OpenKey(PackagesKey)
	if err != nil {
		return nil, nil, err
	}

	return authority.PEM(), signing.Public(), nil
}

// Stage is the fact that nodes can fetch what they are made of.
func (m *Mirror) Stage() bringup.Stage {
	return bringup.Stage{
		Name:  "supplies-served",
		Title: "Nodes are served images and packages",
		Fact: "nodes are served every container image and every package of the stick, " +
			"on each network where the appliance supplies them",
		Why:  "Clusters are installed from them. Before the site is handed over, so that no installer waits.",
		Done: m.checkServed, Do: m.writeIndex, // asked often: what is brought enters the index then
	}
}

// PackagesStage is the fact that machines can install themselves.
func (m *Mirror) PackagesStage() bringup.Stage {
	return bringup.Stage{
		Name:  "packages-ready",
		Title: "Packages of Kubernetes are made",
		Fact:  "Kubernetes is in the repository of packages, of which nodes of all clusters are made",
		Why:   "After Ready: all of it is read for its digests, while the servers are being inspected.",
		Done: func(ctx context.Context) error {
			if !m.Kubernetes.Made() {
				return errors.New("the packages of Kubernetes are not made")
			}
			return m.checkServed(ctx)
		},
		Do: func(ctx context.Context, report bringup.Report) error {
			report("making the packages of Kubernetes")
			if err := m.Kubernetes.Make(); err != nil {
				return err
			}
			return m.writeIndex(ctx, report)
		},
		AfterReady: true,
	}
}

// writeIndex writes the index of packages.
func (m *Mirror) writeIndex(ctx context.Context, report bringup.Report) error {
	key, err := packages.OpenKey(PackagesKey)
	if err != nil {
		return err
	}

	report("writing the index of packages")
	owners := m.owners()
	found := indexState(owners, key)
	r := packages.Repository{
		Dir:     packagesRoot,
		Owners:  owners,
		Pools:   packagePools(),
		Key:     key,
		Now:     time.Now,
		LeftOut: func(file, why string) { m.Log.Warn("package is not offered", "file", file, "why", why) },
	}
	if _, err := r.Write(ctx); err != nil {
		return err
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.indexed = found
	return nil
}

func (m *Mirror) owners() []string {
	if m.Owners == nil {
		return nil
	}
	return slices.Sorted(slices.Values(m.Owners()))
}

// indexState tells pools, owners and the key that signs apart without reading packages.
func indexState(owners []string, key *packages.Key) string {
	var b strings.Builder
	fmt.Fprintln(&b, owners)
	b.Write(key.Current())
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

// CheckCertificate is nil if the registry shows a certificate of who signs now, at each address of it.
func (m *Mirror) CheckCertificate(ctx context.Context) error {
	authority, err := m.Vault.Authority()
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.Current())

	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool}}
	for _, addr := range Addrs(registryAddresses(m.Site())) {
		at := netip.AddrPortFrom(addr, registryPort).String()
		conn, err := dialer.DialContext(ctx, "tcp", at)
		if err != nil {
			return bringup.Wait("the registry at %s to show its certificate of the authority that signs: %v", at, err)
		}
		conn.Close()
	}
	return nil
}

// CheckPackagesKey is nil if the registry, at each address of it, has what nodes that are installed now are told to
// trust of packages.
func (m *Mirror) CheckPackagesKey(ctx context.Context) error {
	key, err := packages.OpenKey(PackagesKey)
	if err != nil {
		return err
	}

	return m.askRegistry(ctx, func(ctx context.Context, client *http.Client, addr netip.Addr) error {
		url := "https://" + netip.AddrPortFrom(addr, registryPort).String() + "/packages.asc"
		return checkText(ctx, client, url, key.Public())
	})
}

// checkText is nil if a text is served at a URL.
func checkText(ctx context.Context, client *http.Client, url string, want []byte) error {
	response, err := openURL(ctx, client, url)
	if err != nil {
		return err
	}
	defer response.Body.Close()

	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil || response.StatusCode != http.StatusOK || !bytes.Equal(text, want) {
		return bringup.Wait("%s to be as it ought to be (%s)", url, response.Status)
	}
	return nil
}

// askRegistry asks at each address of the registry, as nodes do, for ten seconds in all.
func (m *Mirror) askRegistry(ctx context.Context, ask func(context.Context, *http.Client, netip.Addr) error) error {
	authority, err := m.Vault.Authority()
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, addr := range Addrs(ServiceAddresses(m.Site())) {
		if err := ask(ctx, client, addr); err != nil {
			return err
		}
	}
	return nil
}

func openURL(ctx context.Context, client *http.Client, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}

	response, err := client.Do(request)
	if err != nil {
		return nil, bringup.Wait("%s to answer: %v", url, err)
	}
	return response, nil
}

func (m *Mirror) checkServed(ctx context.Context) error {
	key, err := packages.OpenKey(PackagesKey)
	if err != nil {
		return err
	}

	m.mu.Lock()
	indexed := m.indexed
	m.mu.Unlock()
	if indexed != indexState(m.owners(), key) {
		return errors.New("the index of packages is not that of the packages that are here, or is of another key")
	}

	return m.askRegistry(ctx, func(ctx context.Context, client *http.Client, addr netip.Addr) error {
		for _, url := range mirrorURLs(addr) {
			response, err := openURL(ctx, client, url)
			if err != nil {
				return err
			}

			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("%s is answered with %s", url, response.Status)
			}
		}
		return nil
	})
}
