package scenario

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/httpbasic"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
)

// Node is what Ironic thinks of a host.
type Node struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"` // metal3~NAME, as the operator names it
	State  string `json:"provision_state"`
	Power  string `json:"power_state"`
	Target string `json:"target_power_state"` // "": nobody waits for another one
	Error  string `json:"last_error"`
	Agent  struct {
		URL string `json:"agent_url"` // where the agent of this boot listens; "": it has not called
	} `json:"driver_internal_info"`
}

// Nodes asks Ironic for its nodes, with the appliance's own password and root; by the host's name.
func (d *Scenario) Nodes(ctx context.Context) (map[string]Node, error) {
	password, err := d.IronicPassword()
	if err != nil {
		return nil, err
	}
	return d.NodesBy(ctx, password)
}

// IronicPassword is what DATA has as the password of Ironic's API now.
func (d *Scenario) IronicPassword() (string, error) {
	credentials, err := os.ReadFile(d.Sandbox.DataPath("/var/lib/firstlight/secret/ironic.credentials"))
	if err != nil {
		return "", fmt.Errorf("read Ironic's password: %w", err)
	}

	password, _, _ := strings.Cut(string(credentials), "\n")
	return password, nil
}

// ironicClient speaks to Ironic with a password and the appliance's own root.
func (d *Scenario) ironicClient(password string) (*gophercloud.ServiceClient, error) {
	root, err := os.ReadFile(d.Sandbox.DataPath("/var/lib/firstlight/ca/ca.crt"))
	if err != nil {
		return nil, err
	}

	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	c, err := httpbasic.NewBareMetalHTTPBasic(httpbasic.EndpointOpts{
		IronicEndpoint:     "https://" + Address + ":6385/v1/",
		IronicUser:         "firstlight",
		IronicUserPassword: password,
	})
	if err != nil {
		return nil, err
	}

	c.Microversion = "1.81"
	c.HTTPClient = http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext:       dialerIn(d.Sandbox.PID()),
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}}

	return c, nil
}

// AskPower has Ironic ask the BMC of a node that is on for its power: told to switch it on, it finds out from the BMC
// that it is on, and orders nothing (ironic/conductor/utils.py, node_power_action). What came of it is in Nodes.
func (d *Scenario) AskPower(ctx context.Context, uuid string) error {
	password, err := d.IronicPassword()
	if err != nil {
		return err
	}
	c, err := d.ironicClient(password)
	if err != nil {
		return fmt.Errorf("ask for the power of node %s: %w", uuid, err)
	}

	on := nodes.PowerStateOpts{Target: nodes.PowerOn}
	if err := nodes.ChangePowerState(ctx, c, uuid, on).ExtractErr(); err != nil {
		return fmt.Errorf("ask for the power of node %s: %w", uuid, err)
	}
	return nil
}

// NodesBy asks as Nodes does, with a password.
func (d *Scenario) NodesBy(ctx context.Context, password string) (map[string]Node, error) {
	c, err := d.ironicClient(password)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}

	fields := []string{
		"uuid", "name", "provision_state", "power_state", "target_power_state", "last_error", "driver_internal_info",
	}
	page, err := nodes.List(c, nodes.ListOpts{Fields: fields}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}

	var list []Node
	if err := nodes.ExtractNodesInto(page, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}

	byName := map[string]Node{}
	for _, n := range list {
		byName[strings.TrimPrefix(n.Name, "metal3~")] = n
	}

	return byName, nil
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

// AskUploads asks the upload API as somebody with a token does on the appliance itself.
func (d *Scenario) AskUploads(ctx context.Context, path, token string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+Address+":9015"+path, nil)
	if err != nil {
		return 0, err
	}

	request.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext:       dialerIn(d.Sandbox.PID()),
		DisableKeepAlives: true,
		TLSClientConfig:   clientTLS(),
	}}
	answer, err := client.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask the upload API: %w", err)
	}
	defer answer.Body.Close()

	return answer.StatusCode, nil
}
