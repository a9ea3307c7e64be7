package installer

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/contract/inventory"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// cluster is what all nodes of one installation share.
type cluster struct {
	Settings
	dir   string // on the appliance
	nodes []*node
	inv   inventory.Inventory
	log   *slog.Logger

	joining sync.Mutex // control planes join one by one: each changes etcd's members

	goneTimeout time.Duration // of a test; 0: the constant

	mu        sync.Mutex
	identity  *clusterIdentity
	refused   error // why none of its nodes can be made part of it
	api       *api
	appliance *appliance
	ready     []string          // labels of the nodes that were Ready when last asked for
	verified  bool              // in this run
	dirty     map[string]string // label to why, of nodes that were taken out in this run
}

// firstControlPlane is the node that makes the cluster.
func (c *cluster) firstControlPlane() *node {
	return c.nodes[slices.IndexFunc(c.nodes, func(n *node) bool { return n.ControlPlane })]
}

// api is a way to the cluster's API with the administrator's rights.
type api struct {
	from      *node // the control plane that it was made by, and that answers
	config    *rest.Config
	set       *kubernetes.Clientset
	client    client.Client
	authority []byte // the cluster's root certificate, PEM
}

// connect returns a way to an API server that answers, or says what is missing.
func (c *cluster) connect(ctx context.Context) (*api, error) {
	c.mu.Lock()
	known := c.api
	c.mu.Unlock()
	if known != nil && known.checkReady(ctx) == nil {
		return known, nil
	}

	var all []error
	for _, n := range c.nodes {
		if !n.ControlPlane {
			continue
		}

		err := n.checkListening(ctx)
		var a *api
		if err == nil {
			a, err = n.openAPI(ctx)
		}

		if err == nil {
			err = a.checkReady(ctx)
		}

		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			a.from, c.api = n, a
			return a, nil
		}

		all = append(all, err)
	}

	return nil, errors.Join(all...)
}

func (a *api) checkReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	said, err := a.set.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	if open := apply.NotReady(string(said)); err != nil && len(open) > 0 {
		return fmt.Errorf("the API server still waits for %s", strings.Join(open, ", "))
	}

	return err
}

// authorityDigest is what facts.Authority is on a node of this cluster; "" while there is none.
func (a *api) authorityDigest() string {
	if a == nil {
		return ""
	}
	return authorityDigests(a.authority)
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

// checkListening is nil if something takes connections where a node's API server would. It costs a node nothing,
// and is asked every few seconds while kubeadm needs all of its processor; a command by SSH is not.
func (n *node) checkListening(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", netip.AddrPortFrom(n.Addr, apiPort).String())
	if err != nil {
		return fmt.Errorf("reach the API server of %s: %w", n.Label, err)
	}

	return conn.Close()
}

// openAPI makes a way to the API server of one node from the kubeconfig that lies there.
func (n *node) openAPI(ctx context.Context) (*api, error) {
	text, err := n.shell.RunSecret(ctx, "cat", "/etc/kubernetes/admin.conf")
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}
	return newAPI([]byte(text), netip.AddrPortFrom(n.Addr, apiPort))
}

func newAPI(text []byte, server netip.AddrPort) (*api, error) {
	config, err := kubeconfig.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig: %w", err)
	}

	config.Host, config.UserAgent = "https://"+server.String(), "firstlight-installer"
	config.QPS, config.Burst = 100, 200
	a := &api{config: config, authority: config.CAData}
	if a.set, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	if a.client, err = client.New(config, client.Options{}); err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}

	return a, nil
}
