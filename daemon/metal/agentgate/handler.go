package agentgate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// ServeHTTP lets a request through, or says why not. Programs of the appliance reach all of Ironic's API that asks for
// its password. What agents ask for is public there, so a pod that asks for it is refused like any other machine.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		http.Error(w, "no address", http.StatusBadRequest)
		return
	}

	from := peer.Addr().Unmap()
	if g.IsInside(from) && !isPublic(r.URL.Path) {
		g.proxy(w, r)
		return
	}

	token, path := cutToken(r.URL.Path)
	v := g.view(token, from)
	q := Request{Method: r.Method, Path: path, From: from}
	route, refusal := Decide(q, v)
	var body []byte
	if refusal == nil && route != RouteVersions && route != RouteLookup {
		var done func()
		if done, refusal = g.acquire(r, route, v); refusal == nil {
			defer done()
			body, refusal = g.readBody(w, r, route, v, from)
		}
	}

	if answer := g.ownAnswer(route); refusal == nil && answer != nil {
		if refusal = answer(w, r, v, body); refusal == nil {
			return
		}
	}

	if refusal != nil {
		g.refuse(w, r, q, v, *refusal)
		return
	}

	g.pass(w, r, route, v, body)
}

// ownAnswer is how the gate itself answers a request; nil if that is Ironic's business.
func (g *Gate) ownAnswer(route Route) func(http.ResponseWriter, *http.Request, View, []byte) *Refusal {
	switch route {
	case RouteWrite:
		return g.answerWrite
	case RouteErase:
		return g.answerErase
	case RouteErased:
		return g.answerErased
	}
	return nil
}

// cutToken parts a path at the end of its token; "" if it has none.
func cutToken(path string) (token, rest string) {
	after, ok := strings.CutPrefix(path, Prefix)
	if !ok {
		return "", path
	}

	token, rest, _ = strings.Cut(after, "/")
	return token, "/" + rest
}

// view gathers what is known of who asks.
func (g *Gate) view(token string, from netip.Addr) View {
	var v View
	if machine, ok := g.Machines.MachineAt(from); ok {
		v.Lease = machine.MAC.String()
	}

	mac := v.Lease
	if boot, ok := g.Boots.Find(token); token != "" && ok {
		v.Boot, mac = &boot, boot.MAC
	}

	if mac != "" {
		v.Host, v.Current = g.Host(mac)
	}

	return v
}

// limitOf is how many bytes a request may send, for code and for people.
func limitOf(route Route) (limit int64, name string) {
	if route == RouteInventory {
		return maxInventory, "8 MiB"
	}
	return maxHeartbeat, "64 KiB"
}

// acquire waits until there is room for what a request sends, here and in Ironic, which takes fifty times as much for
// it. An inventory has it until Ironic has answered; unknown machines have room of their own.
func (g *Gate) acquire(r *http.Request, route Route, v View) (done func(), _ *Refusal) {
	limit, name := limitOf(route)
	size := limit
	if r.ContentLength >= 0 {
		size = r.ContentLength
	}

	switch {
	case size > limit:
		return nil, &Refusal{ReasonSize, name}
	case route != RouteInventory:
		return func() {}, nil
	}

	room := g.nodeBodies
	if v.Boot.Host == "" {
		room = g.unknownBodies
	}

	if _, twice := g.posting.LoadOrStore(v.Boot.Digest, true); twice {
		return nil, &Refusal{Reason: ReasonBusy} // one machine does not take the room of all
	}

	ctx, cancel := context.WithTimeout(r.Context(), roomTimeout)
	defer cancel()
	if err := room.Acquire(ctx, size); err != nil {
		g.posting.Delete(v.Boot.Digest)
		return nil, &Refusal{Reason: ReasonBusy}
	}

	return func() { room.Release(size); g.posting.Delete(v.Boot.Digest) }, nil
}

// timely is a body that must be there whole before a time, however often a little of it comes.
type timely struct {
	io.Reader
	until time.Time
}

func (t timely) Read(p []byte) (int, error) {
	if time.Now().After(t.until) {
		return 0, os.ErrDeadlineExceeded
	}
	return t.Reader.Read(p)
}

// readBody reads and checks what a request sends, and returns what is to be passed on.
func (g *Gate) readBody(
	w http.ResponseWriter, r *http.Request, route Route, v View, from netip.Addr,
) ([]byte, *Refusal) {
	limit, name := limitOf(route)
	body, err := io.ReadAll(timely{http.MaxBytesReader(w, r.Body, limit), time.Now().Add(bodyTimeout)})
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, &Refusal{ReasonSize, name}
	} else if err != nil {
		return nil, &Refusal{ReasonBody, "half a request"}
	}

	said, err := parseObject(body)
	if err != nil {
		return nil, &Refusal{ReasonBody, "no JSON object"}
	}

	var refusal *Refusal
	switch route {
	case RouteHeartbeat:
		refusal = checkHeartbeat(said, from)
	case RouteInventory:
		refusal = checkInventory(said, *v.Boot, g.Owner)
	}

	if refusal == nil && v.Boot.Host == "" && !slices.ContainsFunc(inventoryBMCs(said), g.WithoutMAC) {
		refusal = &Refusal{Reason: ReasonUnknown}
		g.Inspected(v.Boot.MAC, said)
	}

	if refusal != nil {
		return nil, refusal
	}

	body, err = json.Marshal(said)
	if err != nil {
		return nil, &Refusal{ReasonBody, "no JSON object"}
	}

	return body, nil
}

// pass asks Ironic in the words of the gate: nothing but the checked body and the version of the API is the agent's.
func (g *Gate) pass(w http.ResponseWriter, r *http.Request, route Route, v View, body []byte) {
	node := nodeOf(v)
	method, path := http.MethodGet, "/"
	switch route {
	case RouteLookup:
		path = lookupPath + "?" + url.Values{"addresses": {v.Boot.MAC}, "node_uuid": {node}}.Encode()
	case RouteHeartbeat:
		method, path = http.MethodPost, heartbeatPath+url.PathEscape(node)
	case RouteInventory:
		method, path = http.MethodPost, inventoryPath
	}

	version := r.Header.Get(versionHeader)
	if route == RouteInventory {
		version = "" // since API 1.95 the answer has the agent's token in it
	}

	answer, err := g.ask(r.Context(), method, path, version, body)
	if err != nil {
		g.silence.Do(func() { g.Log.Warn("agents: Ironic does not answer", "mac", v.Boot.MAC, "error", err) })
		writeError(w, http.StatusBadGateway, "Ironic does not answer")
		return
	}
	defer answer.Body.Close()

	g.refusals.clear(v.Boot.Host)
	if v.Boot.UUID == "" && node != "" {
		g.Boots.bind(*v.Boot, node)
	}

	for _, name := range passedHeaders() {
		if value := answer.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}

	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, io.LimitReader(answer.Body, maxAnswer))
}

// versionHeader names the version of the API that is spoken.
const versionHeader = "X-OpenStack-Ironic-API-Version"

// passedHeaders are those of an answer that an agent gets.
func passedHeaders() []string {
	return []string{
		"Content-Type",
		versionHeader,
		"X-OpenStack-Ironic-API-Minimum-Version",
		"X-OpenStack-Ironic-API-Maximum-Version",
	}
}

func (g *Gate) ask(ctx context.Context, method, path, version string, body []byte) (*http.Response, error) {
	base, client, err := g.Ironic()
	if err != nil {
		return nil, err
	}

	request, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	if version != "" {
		request.Header.Set(versionHeader, version)
	}

	return client.Do(request)
}

// proxy passes on what a program of the appliance asks.
func (g *Gate) proxy(w http.ResponseWriter, r *http.Request) {
	base, client, err := g.Ironic()
	if err != nil {
		writeError(w, http.StatusBadGateway, "Ironic cannot be asked yet")
		return
	}

	target, err := url.Parse(base)
	if err != nil {
		writeError(w, http.StatusBadGateway, "Ironic has no address")
		return
	}

	(&httputil.ReverseProxy{
		Transport: client.Transport,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Host = p.In.Host // links in answers lead back here
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			g.Log.Debug("Ironic does not answer", "error", err)
			writeError(w, http.StatusBadGateway, "Ironic does not answer")
		},
	}).ServeHTTP(w, r)
}

// refuse answers an agent, and notes why: on the host of its machine, and on the one that it named.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, q Request, v View, why Refusal) {
	for _, c := range g.listConcerns(r, q, v, why) {
		if !g.refusals.note(q.From, c, why) {
			continue
		}

		g.Log.Warn("agent refused", "from", q.From, "lease", v.Lease, "host", c.host, "reason", string(why.Reason),
			"method", clean(q.Method), "path", clean(q.Path), "why", c.sentence)
		if c.host != "" && why.isOfHost() {
			g.Refused(c.host, c.sentence)
		}
	}

	// What follows on this connection is none of ours: a body that was not read is not read now.
	w.Header().Set("Connection", "close")
	writeError(w, why.status(), why.Sentence())
}

// listConcerns returns the hosts that a refusal is noted of: the machine's own, and one in whose name it called. Where
// there is neither, the host is "".
func (g *Gate) listConcerns(r *http.Request, q Request, v View, why Refusal) []concern {
	own := concern{sentence: why.Sentence()}
	if v.Host != nil {
		own.host = v.Host.Name
	}

	named := g.namedHost(q, r.URL.Query())
	if named == "" || named == own.host {
		return []concern{own}
	}

	claim := concern{
		host:     named,
		isClaim:  true,
		sentence: q.From.String() + " called in its name and was refused: " + own.sentence,
	}
	if own.host == "" {
		return []concern{claim}
	}

	return []concern{own, claim}
}

// maxNamed is how many MACs of one request are looked up: an agent names the few that its machine has.
const maxNamed = 32

// namedHost is the host that a request names by a MAC or by Ironic's node; "" if it names none. Nothing is read for it
// but the address that was asked for.
func (g *Gate) namedHost(q Request, query url.Values) string {
	macs := strings.Split(query.Get("addresses"), ",")
	for _, mac := range macs[:min(len(macs), maxNamed)] {
		if host, _ := g.Host(strings.ToLower(strings.TrimSpace(mac))); host != nil {
			return host.Name
		}
	}

	node := query.Get("node_uuid")
	if after, ok := strings.CutPrefix(q.Path, heartbeatPath); ok {
		node = after
	}
	if node == "" {
		return ""
	}

	return g.NodeOwner(node)
}

// writeError answers as Ironic does, so that the agent logs the sentence (ironic_api_client.py, _error_from_response).
func writeError(w http.ResponseWriter, status int, sentence string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error_message": map[string]string{"faultstring": sentence}})
}
