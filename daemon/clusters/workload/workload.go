// Package workload asks a workload cluster what runs on it, for people who look at it from the appliance: its nodes, its
// pods, its Tenants, and what happened there lately. It reads with the cluster's own kubeconfig, and writes Tenants alone.
// What comes back is the word of whoever owns the cluster, so its time, number and size are bounded.
package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
)

// Bounds of what is asked for.
const (
	maxNodes  = 1000
	maxPods   = 1000
	maxEvents = 1000
	maxAnswer = 16 << 20        // bytes of one answer
	maxObject = 512 << 10       // bytes of one object, which takes up to a hundred times as much when it is read
	timeout   = 3 * time.Second // of the first question to one API server
)

// Bounds of what is kept for people.
const (
	keptNodes  = 300
	keptPods   = 100
	keptEvents = 30
)

// Contents are what runs on a cluster. It is not changed.
type Contents struct {
	Server  string // address of the API server that answered
	Version string // of Kubernetes, as that says it
	Nodes   []Node // those that are not well first
	Pods    []Pod  // those that are not well first
	Events  []Event

	Tenants     []Tenant
	HasTenants  bool // the cluster knows the kind
	MoreTenants bool // than were asked for

	// How many there are besides those above; More says that the cluster has even more than were asked for.
	NodeCount, PodCount, SickNodes, SickPods int
	MoreNodes, MorePods, MoreEvents          bool
}

// Asker asks clusters. Its zero value is usable.
type Asker struct {
	Dial func(ctx context.Context, network, address string) (net.Conn, error) // nil: kubeconfig.DialOthers
	Now  func() time.Time                                                     // nil: time.Now

	// As is the person for whom the cluster's administrator asks, with that one's rights there; zero: the administrator.
	As rest.ImpersonationConfig
}

// Ask reads what runs on the cluster of a kubeconfig. Of several control planes the first that answers is asked. The
// error is for people.
func (a Asker) Ask(ctx context.Context, text []byte) (c Contents, err error) {
	server, version, err := a.reach(ctx, text, func(set *kubernetes.Clientset) error {
		c, err = a.read(ctx, set)
		return err
	})
	if err != nil {
		return Contents{}, err
	}
	c.Server, c.Version = server, excerpt.Start(version, 60)
	return c, nil
}

// reach has something read from the first API server of a kubeconfig that answers, and returns where that is.
func (a Asker) reach(
	ctx context.Context, text []byte, read func(*kubernetes.Clientset) error,
) (server, version string, err error) {
	configs, err := kubeconfig.ParseContexts(text)
	if err != nil {
		return "", "", fmt.Errorf("its kubeconfig is not used: %w", err)
	}

	var problems []error
	for _, config := range configs {
		set, version, err := a.connect(ctx, config)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", config.Host, err))
			continue
		}

		if err := read(set); err != nil {
			return "", "", fmt.Errorf("%s: %w", config.Host, err)
		}
		return config.Host, version, nil
	}
	return "", "", errors.Join(problems...)
}

// connect returns a client of one API server, once that has said its version.
func (a Asker) connect(ctx context.Context, config *rest.Config) (set *kubernetes.Clientset, version string, err error) {
	c := rest.CopyConfig(config)
	c.Dial = a.Dial
	if c.Dial == nil {
		c.Dial = kubeconfig.DialOthers
	}
	c.QPS, c.Burst = 50, 100
	c.UserAgent, c.Impersonate = "firstlight-page", a.As
	c.WarningHandler = rest.NoWarnings{}
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedTransport{next} })
	if set, err = kubernetes.NewForConfig(c); err != nil {
		return nil, "", err
	}

	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := set.RESTClient().Get().AbsPath("/version").SetHeader("Accept", runtime.ContentTypeJSON).DoRaw(ctx)
	if err != nil {
		return nil, "", err
	}
	return set, parseVersion(body), nil
}

// read lists nodes, pods, events and Tenants at the same time.
func (a Asker) read(ctx context.Context, set *kubernetes.Clientset) (Contents, error) {
	var c Contents // each list has fields of its own
	at, core, asked := a.now(), set.CoreV1().RESTClient(), new(errgroup.Group)
	asked.Go(func() (err error) {
		c.MoreNodes, err = list(ctx, core.Get(), "nodes", maxNodes, c.addNode)
		return err
	})
	asked.Go(func() (err error) {
		c.MorePods, err = list(ctx, core.Get(), "pods", maxPods, func(p *corev1.Pod) { c.addPod(p, at) })
		return err
	})
	asked.Go(func() (err error) {
		c.MoreEvents, err = list(ctx, core.Get(), "events", maxEvents, c.addEvent)
		return err
	})
	asked.Go(func() error { return c.readTenants(ctx, core) })
	if err := asked.Wait(); err != nil {
		return Contents{}, err
	}

	c.bound()
	return c, nil
}

func (a Asker) now() time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return time.Now()
}

// boundedTransport breaks off answers that are longer than maxAnswer, and follows none to another place: whoever has the
// cluster would have the appliance ask any machine of its networks, also in the clear, and the page show what that says.
type boundedTransport struct{ next http.RoundTripper }

func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 3 {
		_ = response.Body.Close()
		return nil, errors.New("it leads to another address, and no cluster is asked there")
	}
	response.Body = &boundedBody{response.Body, maxAnswer}
	return response, nil
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer is longer than %d MiB", maxAnswer>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
