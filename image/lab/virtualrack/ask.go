package virtualrack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/status"
)

// applianceClient asks the appliance for its status, by its socket, over one SSH connection that stays
// open: logging in is dear under emulation.
type applianceClient struct {
	dial func(ctx context.Context) (net.Conn, error)
	dir  string // with the key and the known hosts
	run  Run    // with the patience for its deadlines

	client *ssh.Client
	web    *http.Client
}

// Deadlines end what hangs; a busy appliance under emulation is slow to answer.
const (
	loginDeadline = time.Minute
	askDeadline   = 30 * time.Second
)

func (a *applianceClient) fetchStatus(ctx context.Context) (*status.Document, error) {
	if a.client == nil {
		if err := a.login(ctx); err != nil {
			return nil, err
		}
	}

	var doc status.Document
	if err := a.get(ctx, "/v1/status", &doc); err != nil {
		a.close()
		return nil, err
	}

	var nodes []status.Node // with the machines that the site does not name
	if err := a.get(ctx, "/v1/why", &nodes); err == nil {
		doc.Nodes = nodes
	}

	return &doc, nil
}

func (a *applianceClient) close() {
	if a.client != nil {
		a.client.Close()
		a.web.CloseIdleConnections()
	}
	a.client, a.web = nil, nil
}

func (a *applianceClient) login(ctx context.Context) error {
	key, err := readKey(a.dir)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, a.run.ScaleTimeout(loginDeadline))
	defer cancel()
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}

	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	c, channels, requests, err := ssh.NewClientConn(conn, Appliance, &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			return trustFirst(filepath.Join(a.dir, knownFile), key)
		},
	})
	if err != nil {
		conn.Close()
		return fmt.Errorf("log in to the appliance: %w", err)
	}

	a.client = ssh.NewClient(c, channels, requests)
	client := a.client
	a.web = &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return client.Dial("unix", status.SocketPath)
	}}}
	return nil
}

func (a *applianceClient) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, a.run.ScaleTimeout(askDeadline))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://appliance"+path, nil)
	if err != nil {
		return err
	}

	response, err := a.web.Do(request)
	if err != nil {
		return fmt.Errorf("ask the appliance: %w", err)
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the appliance: %s", response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, 16<<20)).Decode(into); err != nil {
		return fmt.Errorf("read the appliance's answer: %w", err)
	}

	return nil
}
