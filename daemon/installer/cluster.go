package installer

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/daemon/bringup"
	"firstlight.dev/firstlight/daemon/installer/inventory"
)

// cluster is what all nodes of one installation share.
type cluster struct {
	Settings
	dir   string // on the appliance
	nodes []*node
	inv   inventory.Inventory
	log   *slog.Logger

	joining sync.Mutex // control planes join one by one: each changes etcd's members

	mu        sync.Mutex
	record    *record
	api       *api
	appliance *appliance
	verified  bool // in this run

	plugins []plugin
}

// first is the node that makes the cluster.
func (c *cluster) first() *node {
	return c.nodes[slices.IndexFunc(c.nodes, func(n *node) bool { return n.ControlPlane })]
}

// api is a way to the cluster's API with the administrator's rights.
type api struct {
	kubeconfig []byte // as kubeadm wrote it
	config     *rest.Config
	set        *kubernetes.Clientset
	client     client.Client
	authority  []byte // the cluster's root certificate, PEM
}

// connect returns a way to an API server that answers, or says what is missing.
func (c *cluster) connect(ctx context.Context) (*api, error) {
	c.mu.Lock()
	known := c.api
	c.mu.Unlock()
	if known != nil && known.answers(ctx) == nil {
		return known, nil
	}
	var all []error
	for _, n := range c.nodes {
		if !n.ControlPlane {
			continue
		}
		err := n.listens(ctx)
		var a *api
		if err == nil {
			a, err = n.api(ctx)
		}
		if err == nil {
			err = a.answers(ctx)
		}
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.api = a
			return a, nil
		}
		all = append(all, err)
	}
	return nil, errors.Join(all...)
}

func (a *api) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := a.set.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err
}

// authorityDigest is what facts.Authority is on a node of this cluster; "" while there is none.
func (a *api) authorityDigest() string {
	if a == nil {
		return ""
	}
	sum := sha256.Sum256(a.authority)
	return hex.EncodeToString(sum[:])
}

// authorityHash is how kubeadm names the root certificate (RFC 7469, the public key's digest).
func (a *api) authorityHash() (string, error) {
	block, _ := pem.Decode(a.authority)
	if block == nil {
		return "", errors.New("the cluster's root certificate is not PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("read the cluster's root certificate: %w", err)
	}
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// apiPort is the API server's on its own node.
const apiPort = 6443

// listens is nil if something takes connections where a node's API server would. It costs a node nothing,
// and is asked every few seconds while kubeadm needs all of its processor; a command by SSH is not.
func (n *node) listens(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", netip.AddrPortFrom(n.Addr, apiPort).String())
	if err != nil {
		return fmt.Errorf("reach the API server of %s: %w", n.Label, err)
	}
	return conn.Close()
}

// api makes a way to the API server of one node from the kubeconfig that lies there.
func (n *node) api(ctx context.Context) (*api, error) {
	text, err := n.shell.Secret(ctx, "cat", "/etc/kubernetes/admin.conf")
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	return newAPI([]byte(text), netip.AddrPortFrom(n.Addr, apiPort))
}

func newAPI(kubeconfig []byte, server netip.AddrPort) (*api, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	config.Host, config.UserAgent = "https://"+server.String(), "firstlight-installer"
	config.QPS, config.Burst = 100, 200
	a := &api{kubeconfig: kubeconfig, config: config, authority: config.CAData}
	if a.set, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	if a.client, err = client.New(config, client.Options{}); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return a, nil
}

// appliance is what the nodes are given from here.
type appliance struct {
	authority   []byte            // PEM of the appliance's root certificate
	packagesKey []byte            // by which its packages are signed, for apt
	digests     map[string]string // image to digest
}

// supply asks this appliance's registry, at the address by which a node knows us, for the root
// certificate that nodes have to trust and for the digests of the images they need. It is on this
// machine: whoever could answer in its place owns the machine.
func (c *cluster) supply(ctx context.Context, at netip.Addr) (*appliance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.appliance != nil {
		return c.appliance, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	base := "https://" + netip.AddrPortFrom(at, RegistryPort).String()
	blind := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // see above
	authority, _, err := get(ctx, blind, base+"/ca.crt")
	if err != nil {
		return nil, bringup.Wait("the appliance's registry: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s/ca.crt is no certificate", base)
	}
	trusting := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	key, _, err := get(ctx, trusting, base+"/packages.asc")
	if err != nil {
		return nil, fmt.Errorf("ask the appliance for the key of its packages: %w", err)
	}
	a := &appliance{authority: authority, packagesKey: key, digests: map[string]string{}}
	for _, image := range imagesOf(true) {
		repository, tag, _ := strings.Cut(strings.TrimPrefix(image, assets.ImageDomain+"/"), ":")
		_, header, err := get(ctx, trusting, base+"/v2/"+repository+"/manifests/"+tag)
		if err != nil {
			return nil, fmt.Errorf("ask the appliance's registry for %s: %w", image, err)
		}
		a.digests[image] = header.Get("Docker-Content-Digest")
	}
	c.appliance = a
	return a, nil
}

func get(ctx context.Context, c *http.Client, url string) ([]byte, http.Header, error) {
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
