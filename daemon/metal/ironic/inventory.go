package ironic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// collector is the name under which the deploy ramdisk reports what lies on a machine's disks
// (overlays/ramdisk), and under which Ironic keeps it.
const collector = "firstlight_disks"

// API speaks to Ironic.
type API struct {
	Endpoint    string // https://ADDR:6385
	Credentials Credentials
	CA          []byte // that signed its certificate, PEM
}

// DiskContents is what a node's last inspection found on each disk, by device name; nil if the
// node was not inspected, or by a ramdisk that does not tell (Ironic API, GET
// /v1/nodes/NODE/inventory).
func (a API) DiskContents(ctx context.Context, node string) (map[string][]string, error) {
	var inventory struct {
		Plugins map[string]json.RawMessage `json:"plugin_data"`
	}
	found, err := a.get(ctx, "/v1/nodes/"+url.PathEscape(node)+"/inventory", &inventory)
	if err != nil || !found || len(inventory.Plugins[collector]) == 0 {
		return nil, err
	}
	var contents map[string][]string
	if err := json.Unmarshal(inventory.Plugins[collector], &contents); err != nil {
		return nil, fmt.Errorf("read the inventory of node %s: %w", node, err)
	}
	return contents, nil
}

// get reads one document; found is false if there is none.
func (a API) get(ctx context.Context, path string, into any) (found bool, err error) {
	client, err := newClient(a.CA)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.Endpoint+path, nil)
	if err != nil {
		return false, err
	}
	request.SetBasicAuth(a.Credentials.Username, a.Credentials.Password)
	request.Header.Set("X-OpenStack-Ironic-API-Version", "1.81") // the first with inventories
	response, err := client.Do(request)
	if err != nil {
		return false, fmt.Errorf("ask Ironic: %w", err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusNotFound:
		return false, nil
	case http.StatusOK:
	default:
		return false, fmt.Errorf("ask Ironic for %s: it says %s", path, response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, 32<<20)).Decode(into); err != nil {
		return false, fmt.Errorf("read Ironic's answer to %s: %w", path, err)
	}
	return true, nil
}

// newClient is a client for servers with a certificate of this root, one connection per request.
func newClient(root []byte) (*http.Client, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(root) {
		return nil, fmt.Errorf("no root certificate to check Ironic's with")
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}, nil
}
