package page

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/workload"
)

// Pages of the logs of a node: the last lines of each, and one.
const (
	nodeLogsPattern = nodePattern + "/logs"
	nodeLogPattern  = nodeLogsPattern + "/{log}"
)

// lastLines is how many of each log the page of all shows.
const lastLines = 20

// NodeLog is a log that has to do with a node, without secrets.
type NodeLog struct {
	ID    string // of letters, digits and hyphens
	Title string
	Time  time.Time // of what it is about; zero: it goes on
	Log   workload.Log
	Error string // why there is none, or not all of it
}

// nodeLogsAnswer are the logs of a node, or why they are not known.
type nodeLogsAnswer struct {
	Logs  []NodeLog `json:"-"`
	Sum   [sha256.Size]byte
	Error string
}

// newNodeLogs reads the logs of a node while somebody does.
func (s *Server) newNodeLogs() *lookup[nodeLogsAnswer] {
	return &lookup[nodeLogsAnswer]{
		ask: func(ctx context.Context, node string) (a nodeLogsAnswer) {
			logs, err := s.sources.NodeLogs(ctx, node)
			if err != nil {
				a.Error = excerpt.Start(excerpt.Line(err.Error()), 400)
			}
			sum := sha256.New()
			for i := range logs {
				logs[i].Error = excerpt.Start(excerpt.Line(logs[i].Error), 400)
				for _, text := range []string{logs[i].ID, logs[i].Log.Text, logs[i].Error} {
					_, _ = sum.Write([]byte(text + "\x00"))
				}
			}
			a.Logs, a.Sum = logs, [sha256.Size]byte(sum.Sum(nil))
			return a
		},
		changed:  func() { s.hub.forget() },
		most:     16,
		parallel: 2,
		timeout:  time.Minute,
		fresh:    30 * time.Second, // the node is logged in to, which its log has too
		stale:    lookupTTL,
		wait:     3 * time.Second,
	}
}

// askNodeLogs has it in the next picture, or soon after, what the logs of a node say.
func (s *Server) askNodeLogs(r *http.Request) {
	if p, err := s.hub.current(); err == nil && p.hasNode(r.PathValue("name")) {
		s.nodeLogs.get(r.Context(), r.PathValue("name"))
	}
}

// hasNode reports whether there is a node, or a machine, of a name.
func (p *picture) hasNode(name string) bool {
	return slices.ContainsFunc(p.nodes, func(n status.Node) bool { return n.Name == name })
}

// nodeLogsPath is the page of the logs of a node.
func nodeLogsPath(node string) string { return "/nodes/" + url.PathEscape(node) + "/logs" }

// nodeLogsView are the last lines of all logs of a node.
type nodeLogsView struct {
	answerView
	Node, Path string
	Logs       []nodeLogView
}

// nodeLogView is one of them.
type nodeLogView struct {
	NodeLog
	Path string
	Last string // lines
	More bool   // than those
}

// oneNodeLogView is the page of one log.
type oneNodeLogView struct {
	answerView
	Of         NodeLog
	Node, Path string // and of all its logs
}

// showNodeLogs is the page of the logs of a node.
func showNodeLogs(p *picture, _ Role, r *http.Request) (any, string, bool) {
	name := r.PathValue("name")
	if !p.hasNode(name) {
		return nil, name, false
	}

	v := nodeLogsView{Node: name, Path: "/nodes/" + url.PathEscape(name)}
	a, isKnown := p.nodeLogs[name]
	v.answerView = answerView{Asking: !isKnown, Time: a.Time, Error: a.Value.Error}
	for _, one := range a.Value.Logs {
		last := lastOf(one.Log.Text, lastLines)
		v.Logs = append(v.Logs, nodeLogView{
			NodeLog: one,
			Path:    nodeLogsPath(name) + "/" + url.PathEscape(one.ID),
			Last:    last,
			More:    one.Log.IsCut || len(last) < len(one.Log.Text),
		})
	}
	return v, "Logs of " + name, true
}

// showNodeLog is the page of one log of a node.
func showNodeLog(p *picture, _ Role, r *http.Request) (any, string, bool) {
	name := r.PathValue("name")
	a, isKnown := p.nodeLogs[name]
	i := slices.IndexFunc(a.Value.Logs, func(l NodeLog) bool { return l.ID == r.PathValue("log") })
	if !p.hasNode(name) || isKnown && a.Value.Error == "" && i < 0 {
		return nil, r.PathValue("log"), false
	}

	v := oneNodeLogView{Node: name, Path: nodeLogsPath(name)}
	v.answerView = answerView{Asking: !isKnown, Time: a.Time, Error: a.Value.Error}
	title := "Log of " + name
	if i >= 0 {
		v.Of = a.Value.Logs[i]
		title += ": " + v.Of.Title
	}
	return v, title, true
}

// lastOf are the last lines of a text.
func lastOf(text string, lines int) string {
	at := len(strings.TrimSuffix(text, "\n"))
	for range lines {
		if at = strings.LastIndexByte(text[:at], '\n'); at < 0 {
			return text
		}
	}
	return text[at+1:]
}
