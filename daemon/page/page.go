// Package page is the site in a browser: pages that show what the status document and the diagnoses say, behind a
// log-in by a code of `firstlightd login`, and what people of a role may do there. docs/page.md walks through it.
package page

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/audit"
	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/appliance/firewall"
	"firstlight.dev/firstlight/daemon/appliance/metrics"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/clusters/workload"
	"firstlight.dev/firstlight/daemon/engine/rerun"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/capture"
	"firstlight.dev/firstlight/pxe/limit"
)

// Port is that of the page, by TLS.
const Port = 443

// Name is the listener's in the list of the packet filter, by which a site allows it on other networks.
const Name = "page"

// Connections at once, of all browsers and of one address.
const (
	connections = 512
	perClient   = 64
)

// Sources are what pages are made of. All but those that say otherwise answer from memory.
type Sources struct {
	Document func() status.Document
	Why      func() []status.Node     // every node, and machines that neither site nor API name
	Traces   func() []boottrace.Trace // network boots
	// Packets are what a machine asked and was answered in its last boot from the provisioning network, by its MAC. It
	// does not answer from memory, and its error is for people; what was read before it is returned with it.
	Packets  func(mac string) ([]capture.Exchange, error)
	Unknown  func() []status.UnknownMachine
	Site     func() *site.Site
	Networks func() []status.Address // of the appliance

	// Host is the BareMetalHost of a node, which is not to be changed; nil if there is none.
	Host func(name string) *metal3api.BareMetalHost
	// LosableData is the fingerprint of the data that keeps a node from being installed; "": none does.
	LosableData func(node string) string
	// ChangedCertificate is the SHA-256 of what a node's BMC shows in place of the pinned certificate; "": nothing.
	ChangedCertificate func(node string) string
	// OtherServer is what the site says of a node that is another server's than the one that it stands for; "": nothing.
	OtherServer func(node string) string

	// DHCP is what the appliance's DHCP servers do, one for each network that the site asks for one on.
	DHCP func() []NetworkDHCP

	// Workload asks a cluster what runs on it. It does not answer from memory, and its error is for people.
	Workload func(ctx context.Context, c status.Cluster) (workload.Contents, error)
	// Pod and Log ask a cluster about one pod, and what one of its containers printed, in the same way.
	Pod func(ctx context.Context, c status.Cluster, pod workload.PodRef) (workload.PodDetails, error)
	Log func(ctx context.Context, c status.Cluster, of workload.LogRef) (workload.Log, error)
	// NodeLogs reads the logs of a node, without secrets, in the same way.
	NodeLogs func(ctx context.Context, node string) ([]NodeLog, error)
	// Chains asks a cluster what its service chains have counted, in the same way.
	Chains func(ctx context.Context, c status.Cluster) ([]workload.Chain, error)
	// Secrets lists the appliance's secrets, without a value. It does not answer from memory.
	Secrets func(ctx context.Context) vault.Listing

	// Numbers are the last hour of a few metrics, the oldest sample first.
	Numbers func() []metrics.Sample

	// Update reads the stick: how the versions of the appliance stand. Its error is for people.
	Update func() (UpdateState, error)
	// Writing is how far the update is that the page began.
	Writing func() stickupdate.BackgroundState

	SiteText    func() []byte               // of the document that Site was read from; nil without one
	SiteHistory func() []sitedocument.Entry // the documents that were applied, the oldest first
}

// Server serves the page. Its zero value is not usable; see New.
type Server struct {
	sources   Sources
	deeds     Deeds
	audit     *audit.Log
	authority func() (*ca.Authority, error)
	log       *slog.Logger
	logins    *logins
	tries     limit.Senders // wrong codes
	acts      limit.Senders // actions
	keys      limit.Senders // what is typed at consoles
	typists   typists
	hub       *hub
	streams   chan struct{} // a place for each
	bundles   chan struct{} // a place for the one that is being collected
	uploads   chan struct{} // a place for each request that is passed on
	drafts    drafts
	tenants   tenantDrafts
	masks     masks
	// of the last picture: an update was being written
	wasWriting bool
	handler    http.Handler
	issuers    *issuers

	reviews   *lookup[error] // who may read what
	workloads *lookup[workloadAnswer]
	pods      *lookup[podAnswer]
	logs      *lookup[logAnswer]
	chains    *lookup[chainAnswer]
	secrets   *lookup[vault.Listing]
	versions  *lookup[updateAnswer]
	packets   *lookup[packetsAnswer]
	nodeLogs  *lookup[nodeLogsAnswer]
}

// New returns a server, which writes what people do into auditLog, a file. Nothing is read or listened on before Serve.
func New(
	log *slog.Logger, sources Sources, deeds Deeds, auditLog string, authority func() (*ca.Authority, error),
) *Server {
	s := &Server{
		sources:   sources,
		deeds:     deeds,
		audit:     audit.NewLog(auditLog, log),
		authority: authority,
		log:       limit.Log(log.With("part", "page")),
		logins:    newLogins(time.Now),
		tries:     limit.Senders{Every: 6 * time.Second, Burst: 8},
		acts:      limit.Senders{Every: 2 * time.Second, Burst: 20},
		keys:      limit.Senders{Every: 50 * time.Millisecond, Burst: 40},
		bundles:   make(chan struct{}, 1),
		uploads:   make(chan struct{}, maxUploads),
	}
	s.streams = make(chan struct{}, maxStreams)
	s.hub = newHub(s.read)
	s.handler = s.newHandler()
	s.issuers = newIssuers(deeds.API)
	s.reviews, s.workloads, s.secrets = s.newReviews(), s.newWorkloads(), s.newSecrets()
	s.pods, s.logs, s.chains, s.versions = s.newPods(), s.newLogs(), s.newChains(), s.newVersions()
	s.packets, s.nodeLogs = s.newPackets(), s.newNodeLogs()
	return s
}

// Serve serves the page from the moment that ready says so, at the addresses that the site gives it, until ctx ends.
// When these change it starts again; sessions stay.
func (s *Server) Serve(ctx context.Context, ready func() bool) error {
	wanted := func() ([]netip.Addr, bool) {
		addrs := s.addresses()
		return addrs, len(addrs) > 0
	}
	return rerun.OnChange(ctx, ready, wanted, func(ctx context.Context, addrs []netip.Addr) error {
		var listeners []net.Listener
		for _, addr := range addrs {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", netip.AddrPortFrom(addr, Port).String())
			if err != nil {
				for _, open := range listeners {
					_ = open.Close()
				}
				return fmt.Errorf("listen for browsers: %w", err)
			}
			listeners = append(listeners, l)
		}

		return s.serve(ctx, addrs, listeners)
	})
}

// serve answers on listeners until ctx ends.
func (s *Server) serve(ctx context.Context, addrs []netip.Addr, listeners []net.Listener) error {
	server := &limit.Server{
		Handler:     s.handler,
		Log:         s.log,
		Connections: connections,
		PerClient:   perClient,
		TLS: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: s.certificate(addrs).Certificate,
		},
	}
	if err := server.Serve(ctx, listeners...); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the page: %w", err)
	}

	return nil
}

// addresses are the appliance's own on the networks where the page is served, in order.
func (s *Server) addresses() []netip.Addr {
	return firewall.Addresses(Name, s.sources.Site(), s.sources.Networks())
}

// certificate is that for the addresses, by the appliance's authority.
func (s *Server) certificate(addrs []netip.Addr) *ca.Server {
	return &ca.Server{Authority: s.authority, Names: ca.Names{Of: Name, Addrs: addrs, Browsers: true}}
}

// Login mints a code for the browser of someone who is called USER@HOST, and says where it can be used. The error is for
// people: what is missing, and what to do.
func (s *Server) Login(role, user string) (status.Login, error) {
	by, err := NewPerson(user, Role(role))
	if err != nil {
		return status.Login{}, err
	}

	addrs := s.addresses()
	if len(addrs) == 0 {
		return status.Login{}, errors.New("the page has no address: the appliance has none on baremetal; " +
			"give networks.baremetal one, or allow the page on another network of site.yaml, such as bmc: {allow: [page]}")
	}

	certificate, err := s.certificate(addrs).Issue()
	if err != nil {
		return status.Login{}, err
	}

	code, expires := s.logins.mint(by)
	digest := sha256.Sum256(certificate.Certificate[0])
	return status.Login{
		URLs:        s.URLs(),
		Code:        code,
		Expires:     expires,
		Fingerprint: formatFingerprint(digest[:]),
		Role:        role,
		User:        user,
	}, nil
}

// URLs are where the page is served; none while the appliance has no address for it.
func (s *Server) URLs() []string {
	var urls []string
	for _, addr := range s.addresses() {
		urls = append(urls, "https://"+hostOf(addr)+"/")
	}
	return urls
}

// hostOf is an address as it is in a URL.
func hostOf(addr netip.Addr) string {
	if addr.Is6() {
		return "[" + addr.String() + "]"
	}
	return addr.String()
}

// formatFingerprint writes bytes as browsers show them: 7A:10:…
func formatFingerprint(digest []byte) string {
	var pairs []string
	for _, b := range digest {
		pairs = append(pairs, strings.ToUpper(hex.EncodeToString([]byte{b})))
	}
	return strings.Join(pairs, ":")
}
