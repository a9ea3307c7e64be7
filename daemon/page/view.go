package page

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
)

// partParameter asks for the main part of a page alone.
const partParameter = "part"

// view is one page for people who are logged in.
type view struct {
	pattern  string
	title    string // in the navigation; "": it is not there
	path     string // of title
	template string

	// data is what the template shows to a role, and the page's title; false if there is no such page.
	data func(p *picture, by Role, r *http.Request) (data any, title string, ok bool)
}

// views are all pages, in the order of the navigation.
func views() []view {
	return []view{
		{"/{$}", "Rack", "/", "rack.html", func(p *picture, _ Role, _ *http.Request) (any, string, bool) {
			return newRackView(p), "Rack", true
		}},
		{nodePattern, "", "", "node.html", showNode},
		{nodeLogsPattern, "", "", "nodelogs.html", showNodeLogs},
		{nodeLogPattern, "", "", "nodelog.html", showNodeLog},
		{consolePattern, "", "", "console.html", showConsole},
		{"/discovered", "Discovered", "/discovered", "discovered.html", func(p *picture, by Role, _ *http.Request) (any, string, bool) {
			return newDiscoveredView(p, by), "Discovered machines", true
		}},
		{"/clusters", "Clusters", "/clusters", "clusters.html", func(p *picture, by Role, _ *http.Request) (any, string, bool) {
			return newClustersView(p, by), "Clusters", true
		}},
		{"/clusters/{name}", "", "", "cluster.html", showCluster},
		{chainPattern, "", "", "chain.html", showChain},
		{tenantPattern, "", "", "tenant.html", showTenant},
		{podPattern, "", "", "pod.html", showPod},
		{logPattern, "", "", "log.html", showLog},
		{logPattern + previousLog, "", "", "log.html", showLog},
		{"/addons", "Add-ons", "/addons", "addons.html", showAddOns},
		{"/networks", "Networks", "/networks", "networks.html", showNetworks},
		{"/uploads", "Uploads", "/uploads", "uploads.html", func(p *picture, by Role, _ *http.Request) (any, string, bool) {
			return newUploadsView(p, by), "Uploads", true
		}},
		{"/numbers", "Numbers", "/numbers", "numbers.html", showNumbers},
		{"/updates", "Updates", "/updates", "updates.html", showUpdates},
		{"/site", "Site", "/site", "site.html", func(p *picture, by Role, _ *http.Request) (any, string, bool) {
			return newSiteView(p, by), "Site", true
		}},
		{"/site/documents/{name}", "", "", "sitedocument.html", func(p *picture, by Role, r *http.Request) (any, string, bool) {
			v, ok := newDocumentView(p, by, r.PathValue("name"))
			return v, "Site, document " + r.PathValue("name"), ok
		}},
		{"/secrets", "Secrets", "/secrets", "secrets.html", showSecrets},
		{"/appliance", "Appliance", "/appliance", "appliance.html", func(p *picture, by Role, _ *http.Request) (any, string, bool) {
			return newApplianceView(p, by), "Appliance", true
		}},
		{"/", "", "", "missing.html", func(*picture, Role, *http.Request) (any, string, bool) {
			return nil, "Nothing is here", false
		}},
	}
}

// mainView is the main part of a page: what the script replaces.
type mainView struct {
	Version  string
	Title    string
	Headline headline
	Data     any
}

// frameView is a whole page.
type frameView struct {
	Name  string // of the appliance
	Title string
	Head  string // headline
	CSRF  string
	By    Person
	Links []navLink
	Main  safeHTML

	Uploads bool   // the script of uploads is loaded, too
	Console bool   // the script of consoles is
	Site    bool   // the script of the site editor is
	Notice  notice // what became of the last action
	IsStill bool   // it does not follow the appliance
}

type navLink struct {
	Path, Title string
	IsHere      bool
}

// serveView shows a page, or its main part alone.
func (s *Server) serveView(w http.ResponseWriter, r *http.Request, of *session, v view) {
	r, read := s.prepare(r, of.person, v)
	p, err := s.hub.current()
	if err != nil {
		s.fail(w, err)
		return
	}

	by, no := of.person.Role, deniedText(denialOf(r))
	page, err := p.render(strings.Join([]string{string(by), v.pattern, r.URL.Path, no}, " "), func() (rendering, error) {
		data, title, ok := v.data(p, by, r)
		code, name := http.StatusOK, v.template
		switch {
		case !ok:
			code, name = http.StatusNotFound, "missing.html"
		case read.isWhole && no != "":
			code, name, data = newRefusal(denialOf(r)).code, "denied.html", no
		}
		version, err := p.versionOf(read, r)
		if err != nil {
			return rendering{}, err
		}
		main, err := execute(name, mainView{Version: version, Title: title, Headline: newHeadline(p.doc), Data: data})
		return rendering{main, title, code, ok}, err
	})
	if err != nil {
		s.fail(w, err)
		return
	}

	if r.URL.Query().Has(partParameter) {
		writeHTML(w, r, page.code, page.main)
		return
	}

	frame := newFrame(p, of, r.URL.Path, page.title, page.main)
	frame.Notice = s.logins.takeNotice(of)
	s.write(w, r, page.code, "frame.html", frame)
}

// newFrame is what is around the main part of a page.
func newFrame(p *picture, of *session, path, title string, main []byte) frameView {
	frame := frameView{
		Name:  p.doc.Name,
		Title: title,
		Head:  newHeadline(p.doc).Text,
		CSRF:  of.csrf,
		By:    of.person,
		Main:  safeHTML(main),

		Uploads: path == onUploads.shown,
		Console: strings.HasPrefix(path, "/nodes/") && strings.HasSuffix(path, "/console"),
	}
	for _, to := range views() {
		if to.title != "" && of.person.Role.covers(to.needs()) {
			frame.Links = append(frame.Links, navLink{to.path, to.title, to.path == path})
		}
	}

	return frame
}

// write answers with a template.
func (s *Server) write(w http.ResponseWriter, r *http.Request, code int, name string, data any) {
	b, err := execute(name, data)
	if err != nil {
		s.fail(w, err)
		return
	}
	writeHTML(w, r, code, b)
}

// fail says that a page could not be made. Why is in the log: it is a fault of ours.
func (s *Server) fail(w http.ResponseWriter, err error) {
	s.log.Error("page not made", "error", err)
	http.Error(
		w, "This page could not be made. firstlightd status and firstlightd why on the appliance say what it would show.",
		http.StatusInternalServerError,
	)
}

// writeHTML answers, compressed if the browser takes that.
func writeHTML(w http.ResponseWriter, r *http.Request, code int, b []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Add("Vary", "Accept-Encoding")
	if !acceptsGzip(r) {
		w.WriteHeader(code)
		_, _ = w.Write(b)
		return
	}

	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(b) // to memory
	_ = z.Close()
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(code)
	_, _ = w.Write(packed.Bytes())
}
