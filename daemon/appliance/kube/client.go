package kube

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// apiClient is what talks to the API server, as long as its address and the daemon's certificate are the same.
type apiClient struct {
	address     netip.Addr
	certificate string // its text, and that of whom it trusts
	config      *rest.Config
	set         *kubernetes.Clientset
	client      client.WithWatch
}

// connect returns clients with the daemon's certificate. No request is made.
func (c *Cluster) connect() (*apiClient, error) {
	certificate, err := os.ReadFile(c.path(daemonClient + ".crt"))
	if err != nil {
		return nil, fmt.Errorf("read the daemon's certificate: %w", err)
	}

	trusted, err := os.ReadFile(c.path(caPath + ".crt"))
	if err != nil {
		return nil, fmt.Errorf("read the authority of the API server: %w", err)
	}
	certificate = append(certificate, trusted...)

	c.mu.Lock()
	defer c.mu.Unlock()
	address := c.desired.Address
	if c.api != nil && c.api.certificate == string(certificate) && c.api.address == address {
		return c.api, nil
	}

	config := &rest.Config{
		Host: "https://" + netip.AddrPortFrom(address, 6443).String(),
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   c.path(caPath + ".crt"),
			CertFile: c.path(daemonClient + ".crt"),
			KeyFile:  c.path(daemonClient + ".key"),
		},
		UserAgent: "firstlightd",
		QPS:       100,
		Burst:     200,
	}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}

	// A client of its own kind: it asks for what the server has when it is first used.
	cl, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}

	c.api = &apiClient{
		address:     address,
		certificate: string(certificate),
		config:      config,
		set:         set,
		client:      cl,
	}
	return c.api, nil
}

// checkReady is nil if the API server says that it can serve.
func (c *Cluster) checkReady(ctx context.Context) error {
	api, err := c.connect()
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	said, err := api.set.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	if err == nil {
		return nil
	}
	if open := apply.NotReady(string(said)); len(open) > 0 {
		return bringup.Wait("the API server, which still waits for %s", strings.Join(open, ", "))
	}

	return fmt.Errorf("ask the API server: %w", err)
}
