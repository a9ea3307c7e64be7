package operator

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/bpa/nodeupdate"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// nodeSession is a way to the API of a cluster and to its nodes, for one look.
type nodeSession struct {
	*NodeUpdates
	u     *nodeUpdate
	api   Workload
	shell remote.Shell
	keys  nodeKeys
	close func()
	fault *nodeupdate.Hold // why there is none of it

	addrs map[string]netip.Addr // of nodes, by name
}

// askedFacts are what a node in service said, or why it said nothing.
type askedFacts struct {
	token string
	at    time.Time
	facts *nodeupdate.Facts
	fault string
}

// open logs in to a cluster and its nodes. close is never nil.
func (r *NodeUpdates) open(ctx context.Context, u *nodeUpdate) (*nodeSession, error) {
	s := &nodeSession{NodeUpdates: r, u: u, close: func() {}, addrs: map[string]netip.Addr{}}
	for _, m := range u.record.Members {
		s.addrs[m.Label] = m.Address
	}

	var err error
	if s.api, err = r.connect(u.cluster); err != nil {
		s.fault = &nodeupdate.Hold{Reason: ClusterSilent, Sentence: silentSentence(u.cluster, err)}
		return s, nil
	}

	dir := r.clusterDir(u.cluster)
	known, err := dir.knownHosts()
	if err != nil {
		return s, err
	}
	systems, err := dir.readSystems()
	if err != nil {
		return s, err
	}
	s.keys = nodeKeys{dir, known, systems}

	softwares := &Softwares{Config: r.Config, Reader: r.Reader}
	shell, done, err := softwares.login(ctx, u.cluster)
	if err != nil {
		s.fault = &nodeupdate.Hold{Reason: NoSSHKey, Sentence: err.Error()}
		return s, nil
	}
	s.shell, s.close = shell, done
	return s, nil
}

// connect connects to the API of a cluster by the kubeconfig that its installer left.
func (r *NodeUpdates) connect(cluster string) (Workload, error) {
	text, err := r.clusterDir(cluster).read(contract.FileKubeconfig)
	if err != nil {
		return Workload{}, err
	}
	if len(text) == 0 {
		return Workload{}, fmt.Errorf("there is no %s", r.clusterDir(cluster).path(contract.FileKubeconfig))
	}
	return r.Connect(text)
}

// observe looks at the nodes: first as the cluster has them, then at those that must be asked.
func (s *nodeSession) observe(ctx context.Context) ([]nodeupdate.Node, error) {
	var list corev1.NodeList
	if err := s.api.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}

	nodes := make([]nodeupdate.Node, len(s.u.record.Members))
	faults := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, m := range s.u.record.Members {
		nodes[i] = readNode(m, list.Items)
		wg.Go(func() {
			s.ask(ctx, &nodes[i])
			if nodes[i].Mark != nil {
				faults[i] = s.readPods(ctx, &nodes[i])
			}
		})
	}
	wg.Wait()

	for _, err := range faults {
		if err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// readNode is a node as its cluster has it.
func readNode(m kud.Node, all []corev1.Node) nodeupdate.Node {
	n := nodeupdate.Node{Name: m.Label, ControlPlane: m.Master}
	i := slices.IndexFunc(all, func(o corev1.Node) bool { return o.Name == m.Label })
	if i < 0 {
		return n
	}

	o := &all[i]
	n.IsReady = slices.ContainsFunc(o.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	n.IsClosed, n.BootID = o.Spec.Unschedulable, o.Status.NodeInfo.BootID
	n.Version = o.Status.NodeInfo.KubeletVersion
	n.Mark = nodeupdate.ReadMark(o.Annotations[v1alpha1.AnnotationUpdating])
	n.UpdatedBy = o.Annotations[v1alpha1.AnnotationUpdated]
	return n
}

func (s *nodeSession) key(name string) string { return s.u.cluster + "/" + name }

// ask asks a node for its facts. One that is in service is believed for factsTime.
func (s *nodeSession) ask(ctx context.Context, n *nodeupdate.Node) {
	now := s.Now()
	if was, ok := s.asked.Load(s.key(n.Name)); ok && n.Mark == nil {
		was := was.(askedFacts)
		lasts := factsTime
		if was.fault != "" {
			lasts = silenceTime
		}
		if age := now.Sub(was.at); was.token == s.u.token() && age < lasts {
			n.Facts, n.Error = was.facts, was.fault
			return
		}
	}

	facts, err := s.askFacts(ctx, n.Name)
	if err != nil {
		n.Error = err.Error()
	} else {
		n.Facts = facts
	}
	s.asked.Store(s.key(n.Name), askedFacts{s.u.token(), now, n.Facts, n.Error})
}

// factsLimit is how long a node may take to say how it stands: its package manager may be busy with something else.
const factsLimit = 3 * time.Minute

func (s *nodeSession) askFacts(ctx context.Context, name string) (*nodeupdate.Facts, error) {
	ctx, cancel := context.WithTimeout(ctx, factsLimit)
	defer cancel()
	out, said, err := s.run(ctx, name, nodeupdate.FactsScript(v1alpha1.OwnerOf(s.u.p), s.u.packages))
	if err != nil {
		return nil, err
	}
	return nodeupdate.ReadFacts(s.u.packages, out, said), nil
}

// run runs a script on a node.
func (s *nodeSession) run(ctx context.Context, name, script string) (out, said string, err error) {
	addr := s.addrs[name]
	key, err := s.keys.hostKey(ctx, s.shell, addr)
	if err != nil {
		return "", "", err
	}
	out, said, err = s.shell.Run(ctx, addr, key, script)
	if err != nil {
		return "", "", s.keys.hostKeyError(addr, err)
	}
	return out, said, nil
}

// readPods sorts the pods that are on a node.
func (s *nodeSession) readPods(ctx context.Context, n *nodeupdate.Node) error {
	pods, err := s.listPods(ctx, n.Name)
	if err != nil {
		return err
	}
	n.Pods = nodeupdate.SortPods(pods)
	if refusal, ok := s.refusals.Load(s.key(n.Name)); ok {
		n.Refusal = refusal.(string)
	}
	return nil
}

func (s *nodeSession) listPods(ctx context.Context, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := s.api.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", node, err)
	}
	return pods.Items, nil
}
