package noderuntime

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// node is the part of a Kubernetes Node that the pods' network needs.
type node struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		PodCIDRs []string `json:"podCIDRs"`
	} `json:"spec"`
	Status struct {
		Addresses []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses"`
	} `json:"status"`
}

// address is the node's own, of the wanted family.
func (n node) address(v4 bool) (netip.Addr, bool) {
	for _, a := range n.Status.Addresses {
		addr, err := netip.ParseAddr(a.Address)
		if a.Type == "InternalIP" && err == nil && addr.Is4() == v4 {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// Where a pod finds its credentials (Kubernetes, "Accessing the API from a Pod").
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// nodes follows the cluster's nodes with the pod's own account. A client library would be ten times the
// size of this program.
type nodes struct {
	base   string
	token  func() (string, error)
	client *http.Client
}

func newNodes(env func(string) string) (*nodes, error) {
	authority, err := os.ReadFile(accountDir + "/ca.crt")
	if err != nil {
		return nil, fmt.Errorf("read the cluster's authority: %w", err)
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("read the cluster's authority: %s/ca.crt holds no certificate", accountDir)
	}

	return &nodes{
		base: "https://" + net.JoinHostPort(env("KUBERNETES_SERVICE_HOST"), env("KUBERNETES_SERVICE_PORT")),
		token: func() (string, error) { // it is replaced every hour
			text, err := os.ReadFile(accountDir + "/token")
			return strings.TrimSpace(string(text)), err
		},
		client: &http.Client{Transport: &http.Transport{
			TLSClientConfig:       &tls.Config{RootCAs: pool},
			ResponseHeaderTimeout: time.Minute,
		}},
	}, nil
}

// follow sends all nodes, and again whenever one of them changed; an old list that nobody took is
// replaced by the new one.
func (n *nodes) follow(ctx context.Context, log *slog.Logger) <-chan []node {
	out := make(chan []node, 1)
	send := func(all map[string]node) {
		list := slices.SortedFunc(
			maps.Values(all), func(a, b node) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) },
		)
		select {
		case <-out:
		default:
		}
		out <- list
	}
	go func() {
		for pause := time.Second; ctx.Err() == nil; {
			began := time.Now()
			err := n.watch(ctx, send)
			if time.Since(began) > time.Minute {
				pause = time.Second
			}

			if ctx.Err() == nil && err != nil {
				log.Warn("nodes cannot be followed", "error", err, "again", pause)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
				pause = min(2*pause, 15*time.Second)
			}
		}
	}()

	return out
}

// watch lists the nodes and follows them until the server ends it (nil) or something goes wrong.
func (n *nodes) watch(ctx context.Context, send func(map[string]node)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []node `json:"items"`
	}
	body, err := n.get(ctx, "/api/v1/nodes", nil)
	if err != nil {
		return err
	}

	err = json.NewDecoder(body).Decode(&list)
	_ = body.Close()
	if err != nil {
		return fmt.Errorf("read nodes: %w", err)
	}

	all := map[string]node{}
	for _, i := range list.Items {
		all[i.Metadata.Name] = i
	}

	send(all)
	body, err = n.get(ctx, "/api/v1/nodes", url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"},
		"resourceVersion": {list.Metadata.ResourceVersion}, "timeoutSeconds": {"300"}})
	if err != nil {
		return err
	}
	defer body.Close()

	// The server ends a watch after the time asked for; a server that is gone never does.
	defer time.AfterFunc(6*time.Minute, cancel).Stop()
	return applyEvents(body, all, send)
}

// applyEvents applies a stream of watch events to the nodes.
func applyEvents(stream io.Reader, all map[string]node, send func(map[string]node)) error {
	for d := json.NewDecoder(stream); ; {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := d.Decode(&e); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("follow nodes: %w", err)
		}

		var changed node
		if e.Type == "ERROR" {
			return fmt.Errorf("follow nodes: %.300s", e.Object)
		} else if e.Type == "BOOKMARK" {
			continue
		}

		if err := json.Unmarshal(e.Object, &changed); err != nil {
			return fmt.Errorf("follow nodes: %w", err)
		}

		if e.Type == "DELETED" {
			delete(all, changed.Metadata.Name)
		} else {
			all[changed.Metadata.Name] = changed
		}

		send(all)
	}
}

func (n *nodes) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	return n.do(ctx, http.MethodGet, path+"?"+query.Encode(), "", nil)
}

// do sends a request; content is the type of its body, if it has one.
func (n *nodes) do(ctx context.Context, method, path, content string, text io.Reader) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, n.base+path, text)
	if err != nil {
		return nil, err
	}
	if content != "" {
		request.Header.Set("Content-Type", content)
	}

	token, err := n.token()
	if err != nil {
		return nil, fmt.Errorf("read token: %w", err)
	}

	request.Header.Set("Authorization", "Bearer "+token)
	response, err := n.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask for nodes: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		return nil, fmt.Errorf("ask for nodes: %s: %s", response.Status, text)
	}

	return response.Body, nil
}
