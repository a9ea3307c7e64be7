package agentgate

import (
	"net/http"
	"net/netip"
	"strings"
)

// Prefix comes before the token in the path of what an agent asks for.
const Prefix = "/b/"

// Host is what matters here of the host with a MAC.
type Host struct {
	Name      string
	UUID      string // of Ironic's node; "" while there is none
	InService bool   // it runs its operating system: nobody speaks for a ramdisk on it
}

// View is all that is known of who asks.
type View struct {
	Boot    *Boot  // of the token; nil: it shows none, or none that counts
	Lease   string // MAC that its address is leased to; "": to nobody
	Host    *Host  // with the boot's MAC, or without a boot with the lease's; nil: none
	Current bool   // hosts were read from the API since the daemon started: no Host means that there is none
}

// Request is what is asked, by the path behind the token.
type Request struct {
	Method string
	Path   string
	From   netip.Addr
}

// Route is one of the requests of an agent (ironic_python_agent, ironic_api_client.py and inspector.py).
type Route int

// The routes.
const (
	RouteVersions  Route = iota + 1 // GET /: which versions of the API there are
	RouteLookup                     // GET /v1/lookup: which node this is, and the token of its agent
	RouteHeartbeat                  // POST /v1/heartbeat/UUID: where the agent listens
	RouteInventory                  // POST /v1/continue_inspection
	RouteWrite                      // POST /disk: whether the disk may be written to, which is ours
	RouteErase                      // POST /erase: whether a disk may be erased
	RouteErased                     // POST /erased: a disk was erased
)

// Reason says why a request was refused, for code; people get the Refusal's sentence.
type Reason string

// The reasons.
const (
	ReasonNoBoot    Reason = "no-boot"      // no token, a wrong one, or that of an earlier boot
	ReasonAddress   Reason = "address"      // the token came from another address than it was sent to
	ReasonRoute     Reason = "route"        // no agent asks for that
	ReasonUnknown   Reason = "unknown"      // of an unknown machine only what finds its host by the BMC is passed on
	ReasonNoHost    Reason = "no-host"      // the host is gone
	ReasonInService Reason = "in-service"   // the host runs its operating system
	ReasonNode      Reason = "another-node" // it speaks for another node than the one that was booted
	ReasonNotYet    Reason = "not-yet"      // Ironic has no node for the host yet: the agent asks again
	ReasonCallback  Reason = "callback"     // it wants to be called back elsewhere
	ReasonBody      Reason = "body"         // what it sends is not what agents send
	ReasonSize      Reason = "size"         // it sends too much
	ReasonDisk      Reason = "disk"         // what is on its disk may not be lost
	ReasonBusy      Reason = "busy"         // others send as much as fits: the agent asks again
)

// Refusal is why a request is not passed on.
type Refusal struct {
	Reason Reason
	Detail string // for the sentence: an address, a name
}

// status is what the agent is answered: it asks again after 503, and gives up an inventory after 4xx.
func (r Refusal) status() int {
	switch r.Reason {
	case ReasonNotYet, ReasonBusy:
		return http.StatusServiceUnavailable
	case ReasonSize:
		return http.StatusRequestEntityTooLarge
	case ReasonRoute, ReasonUnknown:
		return http.StatusNotFound // as Ironic says of a machine that it does not know
	case ReasonBody:
		return http.StatusBadRequest
	}
	return http.StatusForbidden
}

// Sentence is for people.
func (r Refusal) Sentence() string {
	switch r.Reason {
	case ReasonNoBoot:
		return "an agent called without the token of its boot, or with that of an earlier one"
	case ReasonAddress:
		return "the token of its boot was used from another address: " + r.Detail
	case ReasonRoute:
		return "something was asked for that no agent asks for"
	case ReasonUnknown:
		return "no host stands for this machine"
	case ReasonNoHost:
		return "its agent called, but its host is gone"
	case ReasonInService:
		return "an agent called for it, but it is in service"
	case ReasonNode:
		return "its agent spoke for another node: " + r.Detail
	case ReasonNotYet:
		return "its agent called before Ironic had a node for it"
	case ReasonCallback:
		return "its agent wanted to be called back at an address that is not its own: " + r.Detail
	case ReasonDisk:
		return "refused by the appliance: " + r.Detail
	case ReasonBusy:
		return "too many inventories were sent at once"
	case ReasonSize:
		return "its agent sent more than " + r.Detail
	}
	return "its agent sent what agents do not send: " + r.Detail
}

// isOfHost reports whether a refusal says something of the host that it concerns. An agent that is early is not refused
// for long, and what is on a disk Ironic says of its host.
func (r Refusal) isOfHost() bool {
	return r.Reason != ReasonNotYet && r.Reason != ReasonBusy && r.Reason != ReasonDisk
}

// Decide says what a request is, or why it is refused.
func Decide(q Request, v View) (Route, *Refusal) {
	route := routeOf(q)
	switch b := v.Boot; {
	case b == nil:
		return 0, &Refusal{Reason: ReasonNoBoot}
	case q.From != b.Addr && v.Lease != b.MAC:
		return 0, &Refusal{ReasonAddress, q.From.String()}
	case route == 0:
		return 0, &Refusal{Reason: ReasonRoute}
	case b.Host == "" && route != RouteInventory && route != RouteVersions:
		return 0, &Refusal{Reason: ReasonUnknown}
	case b.Host == "" || !v.Current: // what it was booted for is all that is known
	case v.Host == nil || v.Host.Name != b.Host:
		return 0, &Refusal{Reason: ReasonNoHost}
	case v.Host.InService:
		return 0, &Refusal{Reason: ReasonInService}
	case b.UUID != "" && v.Host.UUID != "" && v.Host.UUID != b.UUID:
		return 0, &Refusal{ReasonNode, "Ironic has registered it again since it booted"}
	}

	node := nodeOf(v)
	if needsNode := route == RouteLookup || route == RouteHeartbeat; needsNode && node == "" {
		return 0, &Refusal{Reason: ReasonNotYet}
	}
	if route == RouteHeartbeat && strings.TrimPrefix(q.Path, heartbeatPath) != node {
		return 0, &Refusal{ReasonNode, "node " + clean(strings.TrimPrefix(q.Path, heartbeatPath))}
	}

	return route, nil
}

// nodeOf is Ironic's node that a request may speak for; "" if there is none yet.
func nodeOf(v View) string {
	if v.Boot.UUID == "" && v.Host != nil && v.Boot.Host == v.Host.Name {
		return v.Host.UUID
	}
	return v.Boot.UUID
}

const (
	lookupPath    = "/v1/lookup"
	heartbeatPath = "/v1/heartbeat/"
	inventoryPath = "/v1/continue_inspection"
	writePath     = "/disk"
	erasePath     = "/erase"
	erasedPath    = "/erased"
)

// routeOf is what a request asks for, 0 if no agent asks for that.
func routeOf(q Request) Route {
	switch {
	case q.Method == http.MethodGet && (q.Path == "/" || q.Path == ""):
		return RouteVersions
	case q.Method == http.MethodGet && q.Path == lookupPath:
		return RouteLookup
	case q.Method == http.MethodPost && strings.HasPrefix(q.Path, heartbeatPath):
		return RouteHeartbeat
	case q.Method == http.MethodPost && q.Path == inventoryPath:
		return RouteInventory
	case q.Method == http.MethodPost && q.Path == writePath:
		return RouteWrite
	case q.Method == http.MethodPost && q.Path == erasePath:
		return RouteErase
	case q.Method == http.MethodPost && q.Path == erasedPath:
		return RouteErased
	}
	return 0
}

// isPublic reports whether Ironic answers a path to agents, without a password (ironic.api.app, public_api_routes; the
// middleware takes a slash and a suffix at its end for nothing).
func isPublic(path string) bool {
	path = strings.TrimRight(path, "/")
	for _, suffix := range []string{".json", ".xml"} {
		path = strings.TrimSuffix(path, suffix)
	}
	return path == lookupPath || path == inventoryPath || strings.HasPrefix(path+"/", heartbeatPath)
}

// clean makes what came from elsewhere fit for a sentence.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), 100)]
}
