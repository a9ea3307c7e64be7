package scenario

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// Node is what Ironic thinks of a host.
type Node struct {
	UUID  string `json:"uuid"`
	Name  string `json:"name"` // metal3~NAME, as the operator names it
	State string `json:"provision_state"`
	Power string `json:"power_state"`
	Error string `json:"last_error"`
	Agent struct {
		URL string `json:"agent_url"` // where the agent of this boot listens; "": it has not called
	} `json:"driver_internal_info"`
}

// Nodes asks Ironic for its nodes, with the appliance's own password and root; by the host's name.
func (d *Scenario) Nodes(ctx context.Context) (map[string]Node, error) {
	root, err := os.ReadFile(d.Sandbox.DataPath("/var/lib/firstlight/ca/ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	credentials, err := os.ReadFile(d.Sandbox.DataPath("/var/lib/firstlight/secret/ironic.credentials"))
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	password, _, _ := strings.Cut(string(credentials), "\n")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	c := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: dialerIn(d.Sandbox.PID()), DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+Address+":6385/v1/nodes?fields=uuid,name,provision_state,power_state,last_error,driver_internal_info", nil)
	if err != nil {
		return nil, err
	}
	request.SetBasicAuth("firstlight", password)
	request.Header.Set("X-OpenStack-Ironic-API-Version", "1.81")
	response, err := c.Do(request)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("list nodes: %s", response.Status)
	}
	var list struct{ Nodes []Node }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := map[string]Node{}
	for _, n := range list.Nodes {
		nodes[strings.TrimPrefix(n.Name, "metal3~")] = n
	}
	return nodes, nil
}

// Vanish connects to Ironic as many times, says half a word each time and is gone before it can be accepted, as the
// clients of a busy server are.
func (d *Scenario) Vanish(ctx context.Context, times int) error {
	connect := dialerIn(d.Sandbox.PID())
	for range times {
		conn, err := connect(ctx, "tcp", Address+":6385")
		if err != nil {
			return fmt.Errorf("connect to Ironic: %w", err)
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, not a farewell
		}
		_, _ = conn.Write([]byte("\x16\x03\x01"))
		_ = conn.Close()
	}
	return nil
}
