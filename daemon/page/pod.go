package page

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/workload"
)

// Pages of a pod, of what a container of it printed, and of what that printed before its last restart.
const (
	podPattern  = "/clusters/{name}/pods/{namespace}/{pod}"
	logPattern  = podPattern + "/logs/{container}"
	previousLog = "/previous"
)

// podAnswer is what a cluster said of a pod, or why it did not.
type podAnswer struct {
	Details workload.PodDetails
	Error   string
}

// logAnswer is what a container printed, or why that is not known.
type logAnswer struct {
	Log   workload.Log `json:"-"`
	Sum   [sha256.Size]byte
	Error string
}

// podPath is the page of a pod of a cluster.
func podPath(ref string, pod workload.PodRef) string {
	return clusterPath(ref) + "/pods/" + url.PathEscape(pod.Namespace) + "/" + url.PathEscape(pod.Name)
}

// logPath is the page of a log.
func logPath(ref string, of workload.LogRef) string {
	path := podPath(ref, of.Pod) + "/logs/" + url.PathEscape(of.Container)
	if of.IsPrevious {
		path += previousLog
	}
	return path
}

// podOf is the pod that a request is about.
func podOf(r *http.Request) workload.PodRef {
	return workload.PodRef{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
}

// logOf is the log that a request is about.
func logOf(r *http.Request) workload.LogRef {
	return workload.LogRef{
		Pod:        podOf(r),
		Container:  r.PathValue("container"),
		IsPrevious: strings.HasSuffix(r.Pattern, previousLog),
	}
}

// Keys of lookups. No part of them has a line break.
func podKey(ref string, pod workload.PodRef) string {
	return strings.Join([]string{ref, pod.Namespace, pod.Name}, "\n")
}

func logKey(ref string, of workload.LogRef) string {
	key := podKey(ref, of.Pod) + "\n" + of.Container
	if of.IsPrevious {
		key += "\n" + previousLog
	}
	return key
}

// clusterOfKey is the cluster that answers.
func clusterOfKey(key string) string {
	ref, _, _ := strings.Cut(key, "\n")
	return ref
}

func parseLogKey(key string) (ref string, of workload.LogRef) {
	f := append(strings.Split(key, "\n"), "", "")
	return f[0], workload.LogRef{
		Pod:        workload.PodRef{Namespace: f[1], Name: f[2]},
		Container:  f[3],
		IsPrevious: f[4] != "",
	}
}

// newPods asks clusters about pods, while somebody looks.
func (s *Server) newPods() *lookup[podAnswer] {
	return &lookup[podAnswer]{
		ask: func(ctx context.Context, key string) (a podAnswer) {
			ref, of := parseLogKey(key)
			c, err := s.askable(ref)
			if err == nil {
				a.Details, err = s.sources.Pod(ctx, c, of.Pod)
			}
			a.Error = s.describeSilence(ref, err)
			return a
		},
		changed:  func() { s.hub.forget() },
		most:     64,
		group:    clusterOfKey,
		parallel: clusterTurns,
		share:    clusterShare,
		timeout:  15 * time.Second,
		fresh:    20 * time.Second,
		stale:    lookupTTL,
		wait:     3 * time.Second,
	}
}

// newLogs asks clusters what containers printed, while somebody reads it.
func (s *Server) newLogs() *lookup[logAnswer] {
	return &lookup[logAnswer]{
		ask: func(ctx context.Context, key string) (a logAnswer) {
			ref, of := parseLogKey(key)
			c, err := s.askable(ref)
			if err == nil {
				a.Log, err = s.sources.Log(ctx, c, of)
			}
			a.Sum, a.Error = sha256.Sum256([]byte(a.Log.Text)), s.describeSilence(ref, err)
			return a
		},
		changed:  func() { s.hub.forget() },
		most:     32,
		group:    clusterOfKey,
		parallel: clusterTurns,
		share:    clusterShare,
		timeout:  15 * time.Second,
		fresh:    10 * time.Second,
		stale:    lookupTTL,
		wait:     3 * time.Second,
	}
}

// askable is the cluster of a reference.
func (s *Server) askable(ref string) (status.Cluster, error) {
	c, ok := status.FindCluster(s.sources.Document().Clusters, ref)
	if !ok {
		return c, errors.New("the cluster is not there any more")
	}
	return c, nil
}

// describeSilence says in one line why a cluster did not answer; "" if it did.
func (s *Server) describeSilence(ref string, err error) string {
	if err == nil {
		return ""
	}
	s.log.Debug("cluster does not answer", "cluster", ref, "error", err)
	return excerpt.Start(excerpt.Line(err.Error()), 400)
}

// askPod has it in the next picture how a pod is.
func (s *Server) askPod(r *http.Request) {
	if ref, ok := s.askedCluster(r); ok && podOf(r).IsValid() {
		s.pods.get(r.Context(), podKey(ref, podOf(r)))
	}
}

// askLog has it in the next picture what a container printed.
func (s *Server) askLog(r *http.Request) {
	if ref, ok := s.askedCluster(r); ok && logOf(r).IsValid() {
		s.logs.get(r.Context(), logKey(ref, logOf(r)))
	}
}

// answerView is how far the answer of a cluster is.
type answerView struct {
	Idle   bool   // it is too early to ask
	Asking bool   // no answer came yet
	Error  string // why there is none
	Time   time.Time
}

// HasAnswer reports whether there is an answer.
func (v answerView) HasAnswer() bool { return !v.Idle && !v.Asking && v.Error == "" }

// podView is all that is known of one pod.
type podView struct {
	answerView
	Cluster, ClusterPath string
	workload.PodDetails
	Logs []containerLogs // none for people who may not read them
}

// containerLogs are the logs of one container.
type containerLogs struct {
	Name           string
	Path, Previous string // "": there is none
}

// logView is what a container printed.
type logView struct {
	answerView
	workload.LogRef
	PodPath string
	Other   string // the page of the log before this one, or of the one after it
	workload.Log
}

// showPod is the page of one pod.
func showPod(p *picture, by Role, r *http.Request) (any, string, bool) {
	c, ok := status.FindCluster(p.doc.Clusters, r.PathValue("name"))
	pod, ref := podOf(r), status.ClusterRef(p.doc.Clusters, c)
	if !ok || !pod.IsValid() {
		return nil, r.PathValue("pod"), false
	}

	v := podView{Cluster: ref, ClusterPath: clusterPath(ref)}
	a, isKnown := p.pods[podKey(ref, pod)]
	v.answerView = newAnswerView(c, isKnown, a.Time, a.Value.Error)
	v.PodDetails = a.Value.Details
	if by.covers(Operator) {
		for _, one := range v.Containers {
			of := workload.LogRef{Pod: pod, Container: one.Name}
			logs := containerLogs{Name: one.Name, Path: logPath(ref, of)}
			if of.IsPrevious = true; one.HasPrevious {
				logs.Previous = logPath(ref, of)
			}
			v.Logs = append(v.Logs, logs)
		}
	}
	return v, pod.String(), true
}

// showLog is the page of one log.
func showLog(p *picture, _ Role, r *http.Request) (any, string, bool) {
	c, ok := status.FindCluster(p.doc.Clusters, r.PathValue("name"))
	of, ref := logOf(r), status.ClusterRef(p.doc.Clusters, c)
	if !ok || !of.IsValid() {
		return nil, r.PathValue("container"), false
	}

	other := of
	other.IsPrevious = !of.IsPrevious
	v := logView{LogRef: of, PodPath: podPath(ref, of.Pod), Other: logPath(ref, other)}
	a, isKnown := p.logs[logKey(ref, of)]
	v.answerView, v.Log = newAnswerView(c, isKnown, a.Time, a.Value.Error), a.Value.Log
	title := "Log of " + of.Container + " in " + of.Pod.String()
	if of.IsPrevious {
		title += " before its last restart"
	}
	return v, title, true
}

func newAnswerView(c status.Cluster, isKnown bool, at time.Time, problem string) answerView {
	switch {
	case !mayAnswer(c):
		return answerView{Idle: true}
	case !isKnown:
		return answerView{Asking: true}
	}
	return answerView{Time: at, Error: problem}
}
