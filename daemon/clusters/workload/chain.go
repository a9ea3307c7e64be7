package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/daemon/addons/chain/counters"
)

// Bounds of what is asked of a service chain.
const (
	maxChainPods = 50              // of one namespace
	maxMetrics   = 256 << 10       // bytes of what one part counts
	partTimeout  = 5 * time.Second // of one part: it takes nothing from the others
)

// Chain is a service chain of a cluster, as its parts count what passes.
type Chain struct {
	Namespace string // of its add-on
	Hops      []Hop  // in the order in which packets pass them
}

// Hop is one part of a chain, and what it had counted at one moment.
type Hop struct {
	Part     string // counters.Generator, …
	Pod      Pod    // the zero one if it has none
	Error    string // why its counters are not known, for people
	Time     time.Time
	Counters map[string]float64 // by the names of package counters; those that it has
	Began    string             // another one when its counters have begun again at zero

	RulesRefused bool // the firewall obeys rules of before, since those of its ConfigMap are wrong
}

// Rates are how fast the counters of a hop grew between two readings.
type Rates struct {
	Over      time.Duration
	PerSecond map[string]float64 // by the names of the counters; those of which both readings know
	Unknown   string             // why there are none, for people; "": there are
}

// RatesSince are those between an earlier reading of the hop and this one. Counters that began again in between say
// nothing of that time.
func (h Hop) RatesSince(before Hop) Rates {
	over := h.Time.Sub(before.Time)
	switch {
	case h.Error != "":
		return Rates{Unknown: h.Error}
	case before.Counters == nil:
		return Rates{Unknown: "it was read once, and a rate takes two readings"}
	case before.Began != h.Began:
		return Rates{Unknown: "its counters began again at zero since the last reading"}
	case over <= 0:
		return Rates{Unknown: "the clock was set back since the last reading"}
	}

	r := Rates{Over: over, PerSecond: map[string]float64{}}
	for name, now := range h.Counters {
		was, isKnown := before.Counters[name]
		switch {
		case !isKnown:
		case was > now:
			return Rates{Unknown: "its counters began again at zero since the last reading"}
		default:
			r.PerSecond[name] = (now - was) / over.Seconds()
		}
	}
	return r
}

// AskChains reads what the parts of a cluster's service chains have counted; none if it has no chain. A part that does
// not answer says so in its hop. The error is for people.
func (a Asker) AskChains(ctx context.Context, text []byte) (all []Chain, err error) {
	_, _, err = a.reach(ctx, text, func(set *kubernetes.Clientset) error {
		all, err = a.readChains(ctx, set.CoreV1().RESTClient())
		return err
	})
	return all, err
}

func (a Asker) readChains(ctx context.Context, core rest.Interface) (all []Chain, err error) {
	for _, namespace := range counters.Namespaces {
		found, hasPods := map[string]partPod{}, false
		read := func(p *corev1.Pod) {
			hasPods = true
			part, before := p.Labels["app"], found[p.Labels["app"]]
			if isPart := slices.Contains(counters.Parts, part); isPart && !p.CreationTimestamp.Time.Before(before.Since) {
				hideLogs(p)
				found[part] = partPod{describePod(p, a.now()), clipName(string(p.UID)), p.Status.Phase == corev1.PodRunning}
			}
		}
		if _, err := list(ctx, core.Get().Namespace(namespace), "pods", maxChainPods, read); err != nil {
			return nil, err
		}
		if hasPods {
			all = append(all, Chain{namespace, a.readHops(ctx, core, namespace, found)})
		}
	}
	return all, nil
}

// partPod is the pod that is a part of a chain: while one takes the place of another, the later one.
type partPod struct {
	Pod
	uid       string
	isRunning bool
}

// readHops asks the parts of a chain at the same time.
func (a Asker) readHops(ctx context.Context, core rest.Interface, namespace string, pods map[string]partPod) []Hop {
	hops := make([]Hop, len(counters.Parts))
	var asked sync.WaitGroup
	for i, part := range counters.Parts {
		pod, isThere := pods[part]
		h := &hops[i]
		h.Part, h.Pod = part, pod.Pod
		switch {
		case !isThere:
			h.Error = "it has no pod"
		case !pod.isRunning:
			h.Error = "its pod does not run"
		default:
			asked.Go(func() { a.readHop(ctx, core, namespace, pod, h) })
		}
	}
	asked.Wait()
	return hops
}

// readHop reads what one part has counted.
func (a Asker) readHop(ctx context.Context, core rest.Interface, namespace string, pod partPod, h *Hop) {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	values, err := readMetrics(ctx, core, PodRef{namespace, pod.Name})
	if err != nil {
		h.Error = excerpt.Start(excerpt.Line(err.Error()), maxText)
		return
	}

	h.Time, h.RulesRefused = a.now(), values[counters.RulesRefused] > 0
	h.Began = fmt.Sprint(pod.uid, " ", pod.Restarts, " ", values[counters.RulesChanged])
	h.Counters = map[string]float64{}
	for _, name := range counters.Counters {
		if value, isThere := values[name]; isThere {
			h.Counters[name] = value
		}
	}
}

// readMetrics asks a pod for its metrics at its first port, by the proxy of the API server.
func readMetrics(ctx context.Context, core rest.Interface, pod PodRef) (map[string]float64, error) {
	body, err := core.Get().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("proxy").Suffix("metrics").
		SetHeader("Accept", "text/plain").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()

	text, err := io.ReadAll(io.LimitReader(body, maxMetrics+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxMetrics:
		return nil, fmt.Errorf("what it says is longer than %d KiB", maxMetrics>>10)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, errors.New("what it says are no metrics")
	}
	return readValues(families), nil
}

// readValues are the metrics that have one value, and one that a counter or a time may have.
func readValues(families map[string]*dto.MetricFamily) map[string]float64 {
	values := map[string]float64{}
	for name, f := range families {
		if len(f.Metric) != 1 || len(f.Metric[0].Label) > 0 {
			continue
		}
		value := f.Metric[0].GetCounter().GetValue() + f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetUntyped().GetValue()
		if value >= 0 && !math.IsInf(value, 0) {
			values[name] = value
		}
	}
	return values
}
