package installer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/manifest"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// appliance is what the nodes are given from here.
type appliance struct {
	authority   []byte            // PEM of the appliance's root certificate
	packagesKey []byte            // by which its packages are signed, for apt
	digests     map[string]string // image to digest
	programs    string            // version of the packages of Kubernetes
	served      []netip.Prefix    // where nodes are supplied, see near
}

// applianceAddress is the address at which a node is told to fetch what it is made of: the appliance's on the node's own
// network; else local, by which this side reached the node, if nodes are supplied there; else the first
// of served, that on the provisioning network.
func applianceAddress(node, local netip.Addr, served []netip.Prefix) netip.Addr {
	at := slices.IndexFunc(served, func(p netip.Prefix) bool { return p.Contains(node) })
	if at < 0 {
		at = slices.IndexFunc(served, func(p netip.Prefix) bool { return p.Addr() == local })
	}
	return served[max(0, at)].Addr()
}

// explainFetch says of a node's try to fetch something what a person can do if it went wrong, and the node is on
// no network where the appliance supplies nodes. err may be nil.
func explainFetch(err error, node, told netip.Addr, served []netip.Prefix) error {
	if err == nil || slices.ContainsFunc(served, func(p netip.Prefix) bool { return p.Contains(node) }) {
		return err
	}
	return fmt.Errorf("%w; %s is on no network where the appliance supplies nodes: give the appliance a static address there in site.yaml "+
		"(networks.baremetal.address), or the node a way to %s", err, node, told)
}

// explainFetch is the function of that name for this node.
func (n *node) explainFetch(ctx context.Context, err error) error {
	v, a, unknown := n.applianceValues(ctx)
	if unknown != nil {
		return err
	}
	return explainFetch(err, n.Addr, v.Appliance, a.served)
}

// applianceValues is what the appliance has for a node, and what the templates may say with the node's way to it.
func (n *node) applianceValues(ctx context.Context) (values, *appliance, error) {
	a, err := n.loadAppliance(ctx, n.shell.LocalAddr())
	if err != nil {
		return values{}, nil, err
	}

	v := n.values()
	v.Appliance = applianceAddress(n.Addr, n.shell.LocalAddr(), a.served)
	v.Registry = netip.AddrPortFrom(v.Appliance, assets.RegistryPort)
	return v, a, nil
}

// loadAppliance asks this appliance's registry for the root certificate that nodes have to trust, for the digests
// of the images they need, and for the addresses at which it is served. local is where it is looked for
// first, then all addresses of this machine. It is on this machine: whoever could answer in its place owns
// the machine.
func (c *cluster) loadAppliance(ctx context.Context, local netip.Addr) (*appliance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.appliance != nil {
		return c.appliance, nil
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	base, authority, err := findRegistry(ctx, append([]netip.Addr{local}, localAddrs()...))
	if err != nil {
		return nil, bringup.Wait("the appliance's registry: %v", err)
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s/ca.crt is no certificate", base)
	}

	trusting := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	key, _, err := fetchText(ctx, trusting, base+"/packages.asc")
	if err != nil {
		return nil, fmt.Errorf("ask the appliance for the key of its packages: %w", err)
	}

	text, _, err := fetchText(ctx, trusting, base+"/addresses")
	if err != nil {
		return nil, fmt.Errorf("ask the appliance where nodes are supplied: %w", err)
	}

	a := &appliance{authority: authority, packagesKey: key, digests: map[string]string{}}
	if a.served, err = parseServed(string(text)); err != nil {
		return nil, fmt.Errorf("read %s/addresses: %w", base, err)
	}

	for _, image := range imagesOf(true) {
		repository, tag, _ := strings.Cut(strings.TrimPrefix(image, assets.ImageDomain+"/"), ":")
		text, header, err := fetchText(ctx, trusting, base+"/v2/"+repository+"/manifests/"+tag)
		if err != nil {
			return nil, fmt.Errorf("ask the appliance's registry for %s: %w", image, err)
		}

		a.digests[image] = header.Get("Docker-Content-Digest")
		if image != manifest.NodeImage {
			continue
		}
		if a.programs, err = parsePackageVersion(text); err != nil {
			return nil, fmt.Errorf("read the manifest of %s: %w", image, err)
		}
	}

	c.appliance = a
	return a, nil
}

// findRegistry is the base URL at the first of this machine's addresses where a registry answers, and the
// root certificate that it tells of. The error is that of the first address.
func findRegistry(ctx context.Context, at []netip.Addr) (base string, authority []byte, err error) {
	blind := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // see supply
	defer blind.CloseIdleConnections()
	for _, addr := range at {
		base = "https://" + netip.AddrPortFrom(addr, assets.RegistryPort).String()
		authority, _, wrong := fetchText(ctx, blind, base+"/ca.crt")
		if wrong == nil {
			return base, authority, nil
		}

		if err == nil {
			err = wrong
		}
	}

	return "", nil, err
}

// localAddrs are this machine's addresses by which others may know it.
func localAddrs() (addrs []netip.Addr) {
	all, _ := net.InterfaceAddrs() // without them there is still the one that a node knows us by
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
			addrs = append(addrs, p.Addr())
		}
	}
	return addrs
}

// parseServed reads what the registry says at /addresses: an address with its network's length a line.
func parseServed(text string) (served []netip.Prefix, err error) {
	for _, line := range strings.Fields(text) {
		p, err := netip.ParsePrefix(line)
		if err != nil {
			return nil, err
		}
		served = append(served, p)
	}
	if len(served) == 0 {
		return nil, errors.New("no address is named")
	}
	return served, nil
}

// parsePackageVersion is the version of the packages that are made of the one layer of an image, by its manifest.
func parsePackageVersion(text []byte) (string, error) {
	var m imagespec.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return "", err
	}
	if len(m.Layers) != 1 {
		return "", fmt.Errorf("it has %d layers, not one", len(m.Layers))
	}

	return manifest.PackageVersion(m.Layers[0].Digest.Encoded()), nil
}

func fetchText(ctx context.Context, c *http.Client, url string) ([]byte, http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}

	request.Header.Set("Accept", "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json")
	response, err := c.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()

	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}

	return text, response.Header, err
}
