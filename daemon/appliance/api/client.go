package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"firstlight.dev/firstlight/assets/status"
)

// Client asks the daemon behind Socket.
type Client struct {
	Socket string
}

// Status asks for the document.
func (c Client) Status(ctx context.Context) (status.Document, error) {
	var d status.Document
	body, err := c.do(ctx, http.MethodGet, "/v1/status")
	if err != nil {
		return d, err
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return d, fmt.Errorf("read status: %w", err)
	}

	return d, nil
}

// Why asks how every node stands.
func (c Client) Why(ctx context.Context) ([]status.Node, error) {
	body, err := c.do(ctx, http.MethodGet, "/v1/why")
	if err != nil {
		return nil, err
	}

	var nodes []status.Node
	if err := json.Unmarshal(body, &nodes); err != nil {
		return nil, fmt.Errorf("read what the daemon says of nodes: %w", err)
	}

	return nodes, nil
}

// Get asks for one of the paths that Server answers and returns what it says.
func (c Client) Get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path)
}

// Reload makes the daemon read the site again, and returns what is wrong with it. It returns before what
// it says is done.
func (c Client) Reload(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodPost, "/v1/reload")
	return err
}

// Unknown asks for the machines that neither the site nor a host names.
func (c Client) Unknown(ctx context.Context) ([]status.UnknownMachine, error) {
	body, err := c.do(ctx, http.MethodGet, "/v1/unknown")
	if err != nil {
		return nil, err
	}

	var all []status.UnknownMachine
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("read unknown machines: %w", err)
	}

	return all, nil
}

// Trust is what became of TrustBMC: SHA-256 digests of certificates.
type Trust struct {
	Before string `json:"before"` // "": what was pinned could not be read
	Now    string `json:"now"`
}

// BMCCertificate asks for the certificate that TrustBMC would accept.
func (c Client) BMCCertificate(ctx context.Context, node string) (status.BMCCertificate, error) {
	body, err := c.do(ctx, http.MethodGet, "/v1/bmc/certificate?"+url.Values{"node": {node}}.Encode())
	if err != nil {
		return status.BMCCertificate{}, err
	}

	var shown status.BMCCertificate
	if err := json.Unmarshal(body, &shown); err != nil {
		return status.BMCCertificate{}, fmt.Errorf("read the certificate of a BMC: %w", err)
	}

	return shown, nil
}

// TrustBMC has the daemon accept the certificate that the BMC of a node shows, if it has this SHA-256.
func (c Client) TrustBMC(ctx context.Context, node, fingerprint string) (Trust, error) {
	asked := url.Values{"node": {node}, "fingerprint": {fingerprint}}
	body, err := c.do(ctx, http.MethodPost, "/v1/bmc/trust?"+asked.Encode())
	if err != nil {
		return Trust{}, err
	}

	var t Trust
	if err := json.Unmarshal(body, &t); err != nil {
		return Trust{}, fmt.Errorf("read what the daemon trusts: %w", err)
	}

	return t, nil
}

// Rotate has the daemon replace a secret, and returns what happens from then on. nodes are those whose BMCs are meant.
func (c Client) Rotate(ctx context.Context, secret string, nodes ...string) (text string, err error) {
	asked := url.Values{"secret": {secret}, "node": nodes}
	body, err := c.do(ctx, http.MethodPost, "/v1/rotate?"+asked.Encode())
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(body, &text); err != nil {
		return "", fmt.Errorf("read what the daemon replaces: %w", err)
	}

	return text, nil
}

// Login has the daemon mint a code for the page, for somebody with a role.
func (c Client) Login(ctx context.Context, role, user string) (status.Login, error) {
	asked := url.Values{"role": {role}, "user": {user}}
	body, err := c.do(ctx, http.MethodPost, "/v1/login?"+asked.Encode())
	if err != nil {
		return status.Login{}, err
	}

	var l status.Login
	if err := json.Unmarshal(body, &l); err != nil {
		return status.Login{}, fmt.Errorf("read the code for the page: %w", err)
	}

	return l, nil
}

// Adopt has the daemon take nodes into service as they are; all that wait for it if none is named.
func (c Client) Adopt(ctx context.Context, nodes ...string) ([]string, error) {
	return c.doNames(ctx, "/v1/adopt", nodes)
}

// Approve has the daemon make nodes of machines; of all that await it if none is named.
func (c Client) Approve(ctx context.Context, nodes ...string) ([]string, error) {
	return c.doNames(ctx, "/v1/approve", nodes)
}

func (c Client) doNames(ctx context.Context, path string, nodes []string) ([]string, error) {
	body, err := c.do(ctx, http.MethodPost, path+"?"+url.Values{"node": nodes}.Encode())
	if err != nil {
		return nil, err
	}

	var names []string
	if err := json.Unmarshal(body, &names); err != nil {
		return nil, fmt.Errorf("read what the daemon did: %w", err)
	}

	return names, nil
}

// ApplianceReady is what Wait waits for when only the appliance itself matters.
func ApplianceReady(d status.Document) (done bool, err error) {
	switch d.State {
	case status.StateReady:
		return true, nil
	case status.StateFailed:
		return true, fmt.Errorf("the appliance stopped: %s", d.Summary)
	}
	return false, fmt.Errorf("not ready in time: %s", d.Summary)
}

// LaunchFinished is what Wait waits for when the site's nodes matter too: all of them proven, or
// none named. A launch that failed ends the wait at once.
func LaunchFinished(d status.Document) (done bool, err error) {
	if done, err := ApplianceReady(d); !done || err != nil {
		return done, err
	}
	switch d.Launch.State {
	case status.LaunchSucceeded, status.LaunchNothing:
		return true, nil
	case status.LaunchFailed:
		return true, errors.New(d.Launch.Text)
	}
	return false, fmt.Errorf("not launched in time: %s", d.Launch.Text)
}

// Wait asks until what is done, and returns the last document. It ends with an error when
// ctx does, or when what will not come by itself.
func (c Client) Wait(ctx context.Context, what func(status.Document) (done bool, err error)) (status.Document, error) {
	var last status.Document
	for {
		d, err := c.Status(ctx)
		missing := err
		if err == nil {
			var done bool
			if done, missing = what(d); done {
				return d, missing
			}
			last = d
		}

		select {
		case <-ctx.Done():
			if last.Version != "" {
				_, missing = what(last)
			}
			return last, missing
		case <-time.After(time.Second):
		}
	}
}

func (c Client) do(ctx context.Context, method, path string) ([]byte, error) {
	resp, err := c.send(ctx, method, path, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", c.Socket, err)
	}
	return body, nil
}

// send asks the daemon. An answer that is no success is an error; the body of another one is to be closed.
func (c Client) send(ctx context.Context, method, path string, content io.Reader) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.Socket)
		}}}
	req, err := http.NewRequestWithContext(ctx, method, "http://firstlight"+path, content)
	if err != nil {
		return nil, err
	}

	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the daemon at %s: %w", c.Socket, errors.Unwrap(err))
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}

	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", c.Socket, err)
	}
	if resp.StatusCode == http.StatusUnprocessableEntity {
		return nil, errors.New(string(bytes.TrimSpace(body))) // sentences for people
	}
	return nil, fmt.Errorf("ask the daemon at %s: %s: %s", c.Socket, resp.Status, bytes.TrimSpace(body))
}
