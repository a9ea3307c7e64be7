package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/workload"
)

// clusterPath is the page of a cluster.
func clusterPath(ref string) string { return "/clusters/" + url.PathEscape(ref) }

// newKubeconfig is the log-in of a cluster's administrator, as a file.
func (s *Server) newKubeconfig(ctx context.Context, ref string) (result, error) {
	c, ok := status.FindCluster(s.sources.Document().Clusters, ref)
	if !ok {
		return result{}, errors.New("the cluster is not there any more")
	}

	text, err := s.deeds.Kubeconfig(ctx, c)
	return result{file: c.Name + ".kubeconfig", write: func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	}}, err
}

// workloadAnswer is what a cluster said of itself, or why it did not.
type workloadAnswer struct {
	Contents workload.Contents
	Error    string
}

// How many questions clusters are asked at once, as an answer may have some megabytes: in all, and of one cluster. One
// that hangs holds its own share.
const (
	clusterTurns = 8
	clusterShare = 2
)

// newWorkloads asks clusters what runs on them, while somebody looks.
func (s *Server) newWorkloads() *lookup[workloadAnswer] {
	return &lookup[workloadAnswer]{
		ask: func(ctx context.Context, ref string) workloadAnswer {
			c, ok := status.FindCluster(s.sources.Document().Clusters, ref)
			if !ok {
				return workloadAnswer{Error: "it is not there any more"}
			}
			contents, err := s.sources.Workload(ctx, c)
			if err != nil {
				s.log.Debug("cluster does not say what runs on it", "cluster", ref, "error", err)
				return workloadAnswer{Error: excerpt.Start(excerpt.Line(err.Error()), 400)}
			}
			return workloadAnswer{Contents: contents}
		},
		changed:  func() { s.hub.forget() },
		parallel: clusterTurns,
		timeout:  15 * time.Second,
		fresh:    20 * time.Second,
		stale:    lookupTTL,
		wait:     3 * time.Second,
	}
}

// askWorkload has it in the next picture what runs on a cluster that has a kubeconfig.
func (s *Server) askWorkload(r *http.Request) {
	if ref, ok := s.askedCluster(r); ok {
		s.workloads.get(r.Context(), ref)
	}
}

// askedCluster is the reference of the cluster that a page is about; false if it cannot be asked.
func (s *Server) askedCluster(r *http.Request) (ref string, ok bool) {
	p, err := s.hub.current()
	if err != nil {
		return "", false
	}
	c, ok := status.FindCluster(p.doc.Clusters, r.PathValue("name"))
	return status.ClusterRef(p.doc.Clusters, c), ok && mayAnswer(c)
}

// clusterOf is the reference of the cluster that the page of a request is about.
func (p *picture) clusterOf(r *http.Request) string {
	c, _ := status.FindCluster(p.doc.Clusters, r.PathValue("name"))
	return status.ClusterRef(p.doc.Clusters, c)
}

// mayAnswer reports whether a cluster is so far that its API may be there. One of Cluster API has its kubeconfig before
// its first node; one of a Provisioning keeps it when it is changed or fails.
func mayAnswer(c status.Cluster) bool {
	return !slices.Contains([]string{status.ClusterNew, status.ClusterWaiting, status.ClusterDeleting}, c.State)
}

// memberView is one node of a cluster.
type memberView struct {
	status.ClusterNode
	HostPath string // of its host's page; "" without one
}

// clusterPage is all that is known of one cluster.
type clusterPage struct {
	clusterView
	Origin   string // what asked for it
	Members  []memberView
	Commands []string // that reach it by kubectl; none before it has a kubeconfig
	Workload workloadView

	NodeUpdates []nodeUpdateView
}

// workloadView is what runs on a cluster.
type workloadView struct {
	Denied string // why it is not shown
	Idle   bool   // it is too early to ask
	Asking bool   // no answer came yet
	Error  string // why there is none
	Time   time.Time
	workload.Contents
	HiddenNodes, HiddenPods int // those that are well and not listed

	Shared    []tenantView // its Tenants
	NewTenant string       // where one is made; "": not by this role

	Ref string
}

// ChainPath is the page of its service chains.
func (v workloadView) ChainPath() string { return chainPath(v.Ref) }

// PodPath is the page of a pod of the cluster.
func (v workloadView) PodPath(p workload.Pod) string {
	return podPath(v.Ref, workload.PodRef{Namespace: p.Namespace, Name: p.Name})
}

// showCluster is the page of one cluster.
func showCluster(p *picture, by Role, r *http.Request) (any, string, bool) {
	c, ok := status.FindCluster(p.doc.Clusters, r.PathValue("name"))
	if !ok {
		return nil, r.PathValue("name"), false
	}
	v := newClusterPage(p, by, c, deniedText(denialOf(r)))
	return v, v.Ref, true
}

func newClusterPage(p *picture, by Role, c status.Cluster, denied string) clusterPage {
	v := clusterPage{clusterView: newClusterView(p, by, c), Origin: "no object names it", NodeUpdates: newNodeUpdates(p, by, c)}
	if c.Kind != "" {
		v.Origin = c.Kind + " " + c.Namespace + "/" + c.Name
	}
	if c.State == status.ClusterReady {
		v.Commands = kubectlCommands(c, v.Ref, loginAddress(p.doc))
	}

	v.Workload = newWorkloadView(p, v.Ref, c, denied)
	if by.covers(Owner) && v.Workload.HasTenants {
		v.Workload.NewTenant = tenantEditLink(v.Ref, "")
	}
	versions := map[string]string{}
	for _, n := range v.Workload.Nodes {
		versions[n.Name] = n.Version
	}
	for _, m := range c.Members {
		m.Version = cmp.Or(versions[m.Name], m.Version)
		view := memberView{ClusterNode: m}
		if _, name, _ := strings.Cut(m.Host, "/"); p.hosts[name] != nil {
			view.HostPath = "/nodes/" + url.PathEscape(name)
		}
		v.Members = append(v.Members, view)
	}
	return v
}

func newWorkloadView(p *picture, ref string, c status.Cluster, denied string) workloadView {
	a, isKnown := p.workloads[ref]
	switch {
	case denied != "":
		return workloadView{Denied: denied}
	case !mayAnswer(c):
		return workloadView{Idle: true}
	case !isKnown:
		return workloadView{Asking: true}
	}

	v := workloadView{Time: a.Time, Error: a.Value.Error, Contents: a.Value.Contents, Ref: ref}
	v.Shared = listTenants(ref, v.Tenants)
	v.HiddenNodes, v.HiddenPods = v.NodeCount-len(v.Nodes), v.PodCount-len(v.Pods)
	return v
}

// loginAddress is where people log in to the appliance: on baremetal, the owner's network, if it has an address there.
func loginAddress(d status.Document) string {
	for _, a := range slices.Backward(d.Addresses) { // baremetal is the last
		if len(a.Addresses) > 0 {
			address, _, _ := strings.Cut(a.Addresses[0], "/")
			return address
		}
	}
	return "ADDRESS"
}

// kubectlCommands fetch a cluster's kubeconfig and use it.
func kubectlCommands(c status.Cluster, ref, address string) []string {
	file := c.Name + ".kubeconfig"
	return []string{
		fmt.Sprintf("(umask 077; ssh root@%s firstlightd kubeconfig %s > %s)", address, ref, file),
		fmt.Sprintf("kubectl --kubeconfig %s get nodes", file),
	}
}
