package page

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/singleflight"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/firewall"
	"firstlight.dev/firstlight/daemon/appliance/metrics"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/pxe/boottrace"
)

// pictureAge is how long a picture is used before the sources are read again, however many browsers ask.
const pictureAge = 2 * time.Second

// picture is all that the sources said at one moment. It is not changed.
type picture struct {
	time    time.Time
	version string // another one if anything that is shown is different
	shared  string // likewise, but for what lookups answered; see versionOf
	doc     status.Document
	nodes   []status.Node   // of the site, hosts of others, machines that nobody named
	named   map[string]bool // those of nodes that the status document has
	traces  map[string]boottrace.Trace
	unknown map[string]status.UnknownMachine // by their keys
	hosts   map[string]*metal3api.BareMetalHost
	macs    map[string][]string // that the site gives a node
	noBMC   map[string]bool     // nodes of the site that have none

	losable      map[string]string // fingerprints of data that keeps nodes from being installed
	certificates map[string]string // fingerprints of what BMCs show in place of a pinned certificate
	otherServers map[string]string // what the site says of nodes that is another server's

	workloads map[string]answer[workloadAnswer] // of clusters that somebody looks at, by status.ClusterRef
	pods      map[string]answer[podAnswer]      // that somebody looks at, by podKey
	logs      map[string]answer[logAnswer]      // that somebody reads, by logKey
	chains    map[string]answer[chainAnswer]    // likewise, by status.ClusterRef
	packets   map[string]answer[packetsAnswer]  // of nodes that somebody looks at, by packetsKey
	nodeLogs  map[string]answer[nodeLogsAnswer] // of nodes whose logs somebody reads
	secrets   *answer[vault.Listing]            // nil while nobody looks

	versions *answer[updateAnswer] // likewise

	watched map[string]string // digests of what those lookups answered, by the keys that reading.shows has

	writing stickupdate.BackgroundState
	numbers []metrics.Sample

	wantsNoCluster bool // the site says so
	namedClusters  int  // by the site

	dhcp    []NetworkDHCP
	reached map[string][]firewall.Listener // of the appliance, by network

	discover *site.Discover
	siteText []byte // that is applied
	history  []sitedocument.Entry
	drafts   *drafts       // which change without the picture
	tenants  *tenantDrafts // likewise
	masks    *masks

	mu       sync.Mutex
	rendered map[string]rendering // by role, page and path
	making   singleflight.Group   // those that are not made yet, by the same
}

// read makes a picture of the sources.
func (s *Server) read(now time.Time) (*picture, error) {
	p := &picture{
		time:     now,
		doc:      s.sources.Document(),
		nodes:    s.sources.Why(),
		named:    map[string]bool{},
		traces:   map[string]boottrace.Trace{},
		unknown:  map[string]status.UnknownMachine{},
		hosts:    map[string]*metal3api.BareMetalHost{},
		macs:     map[string][]string{},
		noBMC:    map[string]bool{},
		rendered: map[string]rendering{},

		losable:      map[string]string{},
		certificates: map[string]string{},
		otherServers: map[string]string{},
		writing:      s.readWriting(), // before what is known of the versions
		workloads:    s.workloads.known(),
		pods:         s.pods.known(),
		logs:         s.logs.known(),
		chains:       s.chains.known(),
		packets:      s.packets.known(),
		nodeLogs:     s.nodeLogs.known(),

		discover: s.sources.Site().Discover,
		siteText: s.sources.SiteText(),
		history:  s.sources.SiteHistory(),
		drafts:   &s.drafts,
		tenants:  &s.tenants,
		masks:    &s.masks,
		dhcp:     s.sources.DHCP(),
		numbers:  s.sources.Numbers(),
		reached:  map[string][]firewall.Listener{},

		wantsNoCluster: wantsNoCluster(s.sources.Site()),
		namedClusters:  len(s.sources.Site().Clusters),
	}
	for _, a := range p.doc.Addresses {
		p.reached[a.Role] = firewall.ListenersFrom(a.Role, s.sources.Site())
	}
	if a, ok := s.versions.known()[""]; ok {
		p.versions = &a
	}
	if a, ok := s.secrets.known()[""]; ok {
		p.secrets = &a
	}
	for _, n := range p.doc.Nodes {
		p.named[n.Name] = true
	}

	for _, t := range s.sources.Traces() {
		p.traces[t.MAC] = t
	}

	for _, u := range s.sources.Unknown() {
		p.unknown[u.Key()] = u
	}

	for _, n := range p.nodes {
		if host := s.sources.Host(n.Name); host != nil {
			p.hosts[n.Name] = host
		}
		if print := s.sources.LosableData(n.Name); print != "" {
			p.losable[n.Name] = print
		}
		if print := s.sources.ChangedCertificate(n.Name); print != "" {
			p.certificates[n.Name] = print
		}
		if text := s.sources.OtherServer(n.Name); text != "" {
			p.otherServers[n.Name] = text
		}
	}

	for _, n := range s.sources.Site().Nodes {
		p.noBMC[string(n.Name)] = n.BMC == nil
		for _, mac := range append(n.MACs, n.BootMAC) {
			p.macs[string(n.Name)] = append(p.macs[string(n.Name)], string(mac))
		}
	}

	var err error
	if p.shared, err = p.digest(); err != nil {
		return nil, err
	}
	if err = p.digestAnswers(); err != nil {
		return nil, err
	}
	p.version, err = digestOf([]any{p.shared, p.watched})
	return p, err
}

// versionOf is another one if anything that the page of a request shows is different. of is its reading, if it has one.
func (p *picture) versionOf(of reading, r *http.Request) (string, error) {
	if of.shows == nil {
		return p.shared, nil
	}
	return digestOf([]any{p.shared, p.watched[of.shows(p, r)]})
}

// digest is of all that is shown but what lookups answered, which only the pages that ask show. Seconds that only count
// on are left out; instead it changes every minute, so that no age is off by more.
func (p *picture) digest() (string, error) {
	doc := p.doc
	doc.Launch.Elapsed = 0
	hosts := map[string]string{}
	for name, h := range p.hosts {
		hosts[name] = h.ResourceVersion
		if h.Status.PoweredOn {
			hosts[name] += " on"
		}
	}

	history := make([]string, len(p.history))
	for i, e := range p.history {
		history[i] = strconv.Itoa(e.Number) + e.By
	}

	return digestOf([]any{
		doc, p.nodes, p.traces, p.unknown, hosts, p.losable, p.certificates, p.otherServers, p.writing, p.leaseStates(),
		sitedocument.Digest(p.siteText), history, p.wantsNoCluster, p.namedClusters,
		p.time.Unix() / 60,
	})
}

// digestAnswers fills watched: what was said without the time of it, which changes when nothing else does.
func (p *picture) digestAnswers() error {
	p.watched = map[string]string{}
	err := errors.Join(
		addDigests(p.watched, watchedWorkload, p.workloads),
		addDigests(p.watched, watchedPod, p.pods),
		addDigests(p.watched, watchedLog, p.logs),
		addDigests(p.watched, watchedChain, p.chains),
		addDigests(p.watched, watchedPackets, p.packets),
		addDigests(p.watched, watchedNodeLogs, p.nodeLogs),
	)
	if p.secrets != nil {
		err = errors.Join(err, addDigests(p.watched, watchedSecrets, map[string]answer[vault.Listing]{"": *p.secrets}))
	}
	if p.versions != nil {
		err = errors.Join(err, addDigests(p.watched, watchedVersions, map[string]answer[updateAnswer]{"": *p.versions}))
	}
	return err
}

func addDigests[T any](to map[string]string, lookup string, answers map[string]answer[T]) (err error) {
	for key, a := range answers {
		if to[lookup+key], err = digestOf([]any{a.Value}); err != nil {
			return err
		}
	}
	return nil
}

// digestOf is short, and the same for what is the same as JSON.
func digestOf(values []any) (string, error) {
	b, err := json.Marshal(values)
	if err != nil {
		return "", err
	}

	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8]), nil
}

// leaseStates are what the DHCP servers do, without the ends of leases: they move whenever a machine renews its own.
func (p *picture) leaseStates() (all []any) {
	for _, d := range p.dhcp {
		var leases []string
		for _, l := range d.Leases {
			leases = append(leases, l.Addr.String()+" "+l.MAC+" "+l.Hostname)
		}
		all = append(all, d.Role, d.Status, leases)
	}
	return all
}

// rendering is the main part of a page.
type rendering struct {
	main    []byte
	title   string
	code    int  // of HTTP
	isFound bool // there is such a page
}

// maxRendered is how many pages are kept of one picture: pods may have any name.
const maxRendered = 2048

// render returns what make returns, made once for each picture however many ask. What is not found is not kept: people
// make up paths without end.
func (p *picture) render(key string, make func() (rendering, error)) (rendering, error) {
	p.mu.Lock()
	known, ok := p.rendered[key]
	p.mu.Unlock()
	if ok {
		return known, nil
	}

	made, err, _ := p.making.Do(key, func() (any, error) {
		m, err := make()
		if err == nil && m.isFound {
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.rendered) < maxRendered {
				p.rendered[key] = m
			}
		}
		return m, err
	})
	return made.(rendering), err
}

// hub has the newest picture for all who ask.
type hub struct {
	read func(time.Time) (*picture, error)

	mu   sync.Mutex
	last *picture
	when time.Time // last was the newest then
}

func newHub(read func(time.Time) (*picture, error)) *hub { return &hub{read: read} }

// current is a picture that is at most pictureAge old. One that would show the same stays, with what was rendered.
func (h *hub) current() (*picture, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if h.last != nil && now.Sub(h.when) < pictureAge {
		return h.last, nil
	}

	p, err := h.read(now)
	if err != nil {
		return nil, err
	}

	h.when = now
	if h.last == nil || h.last.version != p.version {
		h.last = p
	}

	return h.last, nil
}

// forget has the sources read again for whoever asks next.
func (h *hub) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.when = time.Time{}
}
