package ironic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/httpbasic"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"firstlight.dev/firstlight/assets/inspection"
)

const (
	microversion = "1.81" // the first with inventories
	listTimeout  = 15 * time.Second
	nodeTimeout  = 30 * time.Second
	idleTimeout  = 90 * time.Second // below Ironic's client_socket_timeout (config.go), so that we are the first to close
)

// Access is where Ironic's API is and who may use it.
type Access struct {
	Endpoint           string // see Endpoint
	Username, Password string
	CA                 string // that signed its certificate, PEM
}

// Client asks Ironic's API. It keeps its connection until Access changes, and is for concurrent use.
type Client struct {
	Access func() (Access, error) // asked before each request

	mu      sync.Mutex
	access  Access // that service was made from
	service *gophercloud.ServiceClient
}

// Inspection is what a node's last inspection found of its disks, devices and firmware; nothing if the node was not inspected,
// or by a ramdisk that does not tell (Ironic API, GET /v1/nodes/NODE/inventory).
func (c *Client) Inspection(ctx context.Context, node string) (inspection.Report, error) {
	service, err := c.connect()
	if err != nil {
		return inspection.Report{}, err
	}

	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()

	var inventory struct {
		Plugins   map[string]json.RawMessage `json:"plugin_data"`
		Inventory struct {
			Boot struct {
				Mode inspection.Boot `json:"current_boot_mode"`
			} `json:"boot"`
		} `json:"inventory"`
	}
	err = nodes.GetInventory(ctx, service, url.PathEscape(node)).ExtractInto(&inventory)
	switch {
	case gophercloud.ResponseCodeIs(err, http.StatusNotFound):
		return inspection.Report{}, nil
	case err != nil:
		return inspection.Report{}, fmt.Errorf("ask Ironic for the inventory of node %s: %w", node, err)
	}

	report, err := inspection.ReadReport(inventory.Plugins)
	if err != nil {
		return inspection.Report{}, fmt.Errorf("read the inventory of node %s: %w", node, err)
	}

	report.Booted = inventory.Inventory.Boot.Mode
	return report, nil
}

// EndMaintenance has Ironic work with a node again that somebody took out (Ironic API, DELETE
// /v1/nodes/NODE/maintenance).
func (c *Client) EndMaintenance(ctx context.Context, node string) error {
	service, err := c.connect()
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	if err := nodes.UnsetMaintenance(ctx, service, url.PathEscape(node)).ExtractErr(); err != nil {
		return fmt.Errorf("end the maintenance of node %s in Ironic: %w", node, err)
	}
	return nil
}

// AgentsDue are the nodes, by UUID, of whose agents Ironic would count on one that has not called yet:
// after an inspection it does so without asking (conductor/utils.py, agent_is_alive), and a deployment
// that begins before the agent's first call fails for want of its address. After FastTrack it would boot
// the node again. It is one list for all.
func (c *Client) AgentsDue(ctx context.Context) (map[string]bool, error) {
	all, err := c.list(ctx, "uuid", "power_state", "inspection_finished_at", "driver_internal_info")
	if err != nil {
		return nil, err
	}

	due := map[string]bool{}
	for _, n := range all {
		if isAgentDue(n, time.Now()) {
			due[n.UUID] = true
		}
	}

	return due, nil
}

// Nodes lists all of Ironic's nodes, with the fields that fact.IronicNodes reads: the whole of many nodes keeps
// Ironic busy for seconds. It returns within 15 s.
func (c *Client) Nodes(ctx context.Context) ([]nodes.Node, error) {
	return c.list(ctx, "uuid", "name", "provision_state", "target_provision_state", "power_state", "last_error",
		"maintenance", "maintenance_reason", "deploy_step", "clean_step", "provision_updated_at", "inspection_started_at",
		"driver_internal_info")
}

// list gets some fields of all nodes, page by page: Ironic sends a thousand at most at once.
func (c *Client) list(ctx context.Context, fields ...string) ([]nodes.Node, error) {
	service, err := c.connect()
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()

	var all []nodes.Node
	pages := nodes.List(service, nodes.ListOpts{Fields: fields}).WithPageCreator(newNodePage)
	err = pages.EachPage(ctx, func(_ context.Context, page pagination.Page) (bool, error) {
		some, err := nodes.ExtractNodes(page.(nodePage).NodePage)
		all = append(all, some...)
		return true, err
	})
	if err != nil {
		return nil, fmt.Errorf("ask Ironic for its nodes: %w", err)
	}

	return all, nil
}

// nodePage is a page of nodes that finds Ironic's link to the next one (api/controllers/v1/collection.py), which
// NodePage looks for under another name.
type nodePage struct{ nodes.NodePage }

func newNodePage(r pagination.PageResult) pagination.Page {
	return nodePage{nodes.NodePage{LinkedPageBase: pagination.LinkedPageBase{
		PageResult: r,
		LinkPath:   []string{"next"},
	}}}
}

// NextPageURL implements pagination.Page.
func (p nodePage) NextPageURL() (string, error) { return p.LinkedPageBase.NextPageURL() }

// connect returns the client for the access of now, with connections that are still open.
func (c *Client) connect() (*gophercloud.ServiceClient, error) {
	access, err := c.Access()
	if err != nil {
		return nil, err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.service != nil && c.access == access {
		return c.service, nil
	}

	transport, err := NewTransport([]byte(access.CA))
	if err != nil {
		return nil, err
	}

	service, err := httpbasic.NewBareMetalHTTPBasic(httpbasic.EndpointOpts{
		IronicEndpoint:     access.Endpoint + "/v1/",
		IronicUser:         access.Username,
		IronicUserPassword: access.Password,
	})
	if err != nil {
		return nil, fmt.Errorf("ask Ironic: %w", err)
	}

	service.Microversion = microversion
	service.HTTPClient.Transport = transport
	if c.service != nil {
		c.service.HTTPClient.CloseIdleConnections()
	}

	c.access, c.service = access, service
	return service, nil
}

// NewTransport returns one that trusts servers with a certificate of this root alone.
func NewTransport(root []byte) (*http.Transport, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(root) {
		return nil, errors.New("ask Ironic: there is no root certificate to check it with")
	}
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		IdleConnTimeout: idleTimeout,
	}, nil
}
