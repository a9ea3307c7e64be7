package simulator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// agentVersion is the agent whose requests are made here.
const agentVersion = "10.2.3"

// Versions of Ironic's API that it speaks: lookup as when tokens came, heartbeats as when certificates did.
const (
	lookupVersion    = "1.62"
	heartbeatVersion = "1.68"
)

// tokenHidden stands in the answer to a lookup when the token was given to somebody already.
const tokenHidden = "******"

// agent is one life of a ramdisk.
type agent struct {
	server  *Server
	run     *powerOnPeriod
	api     string // of Ironic, from the kernel's command line
	inspect string // where the inventory goes; "" if it is not asked for
	retries string // ipa-image-download-connection-retries
	client  *http.Client
	cert    string // PEM, its own

	force chan struct{} // a command came to its end

	mu       sync.Mutex
	uuid     string
	token    string
	commands []*command
	node     json.RawMessage // as the conductor described it last
	written  string          // id of the image that is on the disk
}

// runRamdisk runs the agent until the power goes.
func (h *Server) runRamdisk(r *powerOnPeriod, args map[string]string, trust *x509.CertPool) {
	a := &agent{
		server:  h,
		run:     r,
		api:     strings.TrimRight(args["ipa-api-url"], "/"),
		inspect: args["ipa-inspection-callback-url"],
		retries: args["ipa-image-download-connection-retries"],
		client:  h.httpClient(trust),
		force:   make(chan struct{}, 1),
	}
	h.addToken(bootToken(a.api))
	h.addToken(bootToken(a.inspect))
	if !h.setState(r, Ramdisk, a) || h.currentFaults().Mute {
		return
	}
	defer a.client.CloseIdleConnections()

	uuid := ""
	if a.inspect != "" {
		uuid = a.postInventory(r.ctx)
	}

	if a.api == "" {
		return // only looked at: it waits to be switched off
	}

	timeout, err := a.lookup(r.ctx, uuid)
	if err != nil {
		h.logEvent("agent: locks itself down: %v", err)
		return
	}

	cert, text, err := selfSigned(h.addr())
	if err != nil {
		h.logEvent("agent: %v", err)
		return
	}

	a.cert = text
	listener := &service{
		addr:    netip.AddrPortFrom(h.addr(), AgentPort),
		handler: http.HandlerFunc(a.serve),
		cert:    &cert,
	}
	for err := listener.open(h.simulator.wire); err != nil; err = listener.open(h.simulator.wire) {
		if !sleep(r.ctx, 100*time.Millisecond) { // of the boot before, which is about to end
			return
		}
	}

	defer h.simulator.wire.closeService(listener)
	a.sendHeartbeats(r.ctx, timeout)
}

// postInventory posts the inventory and returns the node's UUID, "" if Ironic does not know the host.
func (a *agent) postInventory(ctx context.Context) string {
	for attempt := range 5 {
		code, body, err := a.call(ctx, http.MethodPost, a.inspect, "", a.server.inventory())
		if err == nil && code < 400 {
			var said struct{ UUID string }
			_ = json.Unmarshal(body, &said) // no UUID is no node
			a.server.logEvent("agent: inventory posted, node %s", cmp.Or(said.UUID, "unknown"))
			return said.UUID
		}

		a.server.logEvent("agent: inventory refused: %d %.200s %v", code, body, err)
		if err == nil && code < 500 && code != http.StatusConflict {
			return ""
		}
		if !sleep(ctx, min(5*time.Second<<attempt, 30*time.Second)) {
			return ""
		}
	}
	return ""
}

var errNoToken = errors.New("the token was given to somebody else")

// lookup asks until Ironic knows the host, and returns how often it wants to hear of it.
func (a *agent) lookup(ctx context.Context, uuid string) (heartbeat time.Duration, err error) {
	if a.server.currentFaults().TokenStolen {
		// The thief keeps the answer. While the node is locked there is none.
		for code, _, err := a.requestLookup(
			ctx, uuid,
		); err == nil && code == http.StatusConflict; code, _, err = a.requestLookup(ctx, uuid) {
			if !sleep(ctx, 200*time.Millisecond) {
				return 0, ctx.Err()
			}
		}
	}
	conflict := 5 * time.Second
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		code, said, err := a.requestLookup(ctx, uuid)
		switch {
		case err == nil && code == http.StatusOK && said.Node.UUID != "":
			a.mu.Lock()
			a.uuid = said.Node.UUID
			if len(said.Config.Token) >= 32 {
				a.token = said.Config.Token
			}

			has, token := a.token != "", a.token
			a.mu.Unlock()
			a.server.addToken(token)
			a.server.logEvent("agent: found as %s, token=%v", said.Node.UUID, has)
			if !has && said.Config.Token == tokenHidden {
				return 0, errNoToken
			}

			return time.Duration(said.Config.Heartbeat) * time.Second, nil
		case code == http.StatusConflict:
			a.server.logEvent("agent: lookup: the node is locked")
			if !sleep(ctx, conflict) {
				return 0, ctx.Err()
			}
			conflict = min(2*conflict, 30*time.Second)
		}
		// Between one second and the pause, as tenacity's wait_random_exponential.
		if !sleep(ctx, time.Second+time.Duration(rand.Int64N(int64(pause)))) {
			return 0, ctx.Err()
		}
	}
}

type lookupResult struct {
	Node   struct{ UUID string }
	Config struct {
		Heartbeat float64 `json:"heartbeat_timeout"` // seconds
		Token     string  `json:"agent_token"`
	}
}

func (a *agent) requestLookup(ctx context.Context, uuid string) (int, lookupResult, error) {
	query := url.Values{"addresses": {a.server.MAC}}
	if uuid != "" {
		query.Set("node_uuid", uuid)
	}

	code, body, err := a.call(ctx, http.MethodGet, a.api+"/v1/lookup?"+query.Encode(), lookupVersion, nil)
	var said lookupResult
	if err == nil && code == http.StatusOK {
		err = json.Unmarshal(body, &said)
	}

	if err != nil || code != http.StatusOK {
		a.server.logEvent("agent: lookup: %d %.200s %v", code, body, err)
	}

	return code, said, err
}

// sendHeartbeats calls Ironic until the power goes: at once, then within the time that Ironic gave, and soon
// after each command.
func (a *agent) sendHeartbeats(ctx context.Context, timeout time.Duration) {
	least := a.server.simulator.config.Heartbeat
	for {
		a.mu.Lock()
		uuid, token := a.uuid, a.token
		a.mu.Unlock()
		code, said := a.server.heartbeat(ctx, a, uuid, token)
		interval := time.Duration((0.3 + 0.3*rand.Float64()) * float64(timeout))
		forced := a.force
		if code == http.StatusAccepted {
			a.server.count(func(c *Counters) { c.Heartbeats++ })
		} else {
			if ctx.Err() == nil {
				a.server.logEvent("agent: heartbeat refused: %d %.300s", code, said)
			}
			interval, forced = time.Duration((1+rand.Float64())*float64(least)), nil
		}

		if !sleep(ctx, min(least, interval)) {
			return
		}

		rest := time.NewTimer(interval - min(least, interval))
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		case <-forced:
		}

		rest.Stop()
	}
}

// heartbeat says to Ironic that node uuid has its agent at the host's address.
func (h *Server) heartbeat(ctx context.Context, a *agent, uuid, token string) (int, string) {
	code, body, err := a.call(ctx, http.MethodPost, a.api+"/v1/heartbeat/"+uuid, heartbeatVersion, object{
		"callback_url": "https://" + netip.AddrPortFrom(h.addr(), AgentPort).String(), "agent_token": token,
		"agent_version": agentVersion, "agent_verify_ca": a.cert,
	})
	if err != nil {
		return 0, err.Error()
	}
	return code, string(body)
}

// Claim makes the host's agent, which must run, say that it is the one of node uuid, with a token;
// it returns Ironic's status and answer. It is what a thief or a confused machine would do.
func (h *Server) Claim(ctx context.Context, uuid, token string) (int, string, error) {
	a := h.agent()
	if a == nil {
		return 0, "", fmt.Errorf("host %s: no agent runs", h.Name)
	}

	code, said := h.heartbeat(ctx, a, uuid, token)
	return code, said, nil
}

// Identity is the node that Ironic took the host's running agent for, and the token it was given.
func (h *Server) Identity() (uuid, token string) {
	a := h.agent()
	if a == nil {
		return "", ""
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	return a.uuid, a.token
}

// bootPath is what the appliance puts before the token of a boot in the path of what an agent asks for.
const bootPath = "/b/"

// bootToken is the token of a boot in an address of Ironic's that an agent was given; "": there is none.
func bootToken(url string) string {
	_, after, _ := strings.Cut(url, bootPath)
	token, _, _ := strings.Cut(after, "/")
	return token
}

func (h *Server) addToken(token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if token != "" && !slices.Contains(h.tokens, token) {
		h.tokens = append(h.tokens, token)
	}
}

// ReceivedTokens are all tokens that the host's ramdisks were given: of their boots, and of their agents.
func (h *Server) ReceivedTokens() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.tokens)
}

// BootToken is the token of the boot that the host's ramdisk runs of; "": none runs.
func (h *Server) BootToken() string {
	a := h.agent()
	if a == nil {
		return ""
	}
	if token := bootToken(a.api); token != "" {
		return token
	}
	return bootToken(a.inspect)
}

func (h *Server) agent() *agent {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running == nil {
		return nil
	}

	return h.running.agent
}

// call sends one request as the agent and reads the answer.
func (a *agent) call(ctx context.Context, method, url, version string, body any) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var send io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		send = bytes.NewReader(text)
	}

	request, err := http.NewRequestWithContext(ctx, method, url, send)
	if err != nil {
		return 0, nil, err
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	if version != "" {
		request.Header.Set("X-OpenStack-Ironic-API-Version", version)
	}

	response, err := a.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()

	said, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, said, err
}
