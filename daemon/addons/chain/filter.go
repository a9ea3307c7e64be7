package chain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/daemon/addons/chain/counters"
)

// RulesKey is the key of the ConfigMap that has the rules (ParseRules).
const RulesKey = "rules"

// Reasons of Events at the ConfigMap.
const (
	reasonApplied    = "RulesApplied"
	reasonRefused    = "RulesRefused"    // they are wrong
	reasonNotApplied = "RulesNotApplied" // they are right, and the kernel did not take them
)

// Filter is the firewall: it keeps the rules of a ConfigMap in the kernel of its own network namespace. It forwards
// nothing until it has some; after that the last ones that were right hold, whatever becomes of the ConfigMap.
type Filter struct {
	Namespace, ConfigMap string
	Table                *Table
	Open                 func() error // lets the kernel forward between the table's interfaces
	Client               kubernetes.Interface
	Events               record.EventRecorder
	Listen               string        // ADDRESS:PORT of its page
	Interval             time.Duration // between two lines in the log, and two attempts at what failed
	Log                  *slog.Logger

	mu       sync.Mutex
	found    bool      // an earlier container of the pod left rules in force
	rules    []Rule    // that hold
	holds    bool      // some do
	changed  time.Time // the rules that hold were given to the kernel then, and counters began at zero
	problem  string    // with the ConfigMap of now; "" is none
	reported string    // the version and the problem that there is an Event for

	passed, dropped meter
}

// Filtering is what a firewall says of itself.
type Filtering struct {
	Rules            []RuleCount `json:"rules"`
	Passed           uint64      `json:"passed"`         // packets that no rule fitted
	Forwarded        uint64      `json:"forwarded"`      // packets, by whatever
	ForwardedBytes   uint64      `json:"forwardedBytes"` // of these, with the headers of IP and above
	Dropped          uint64      `json:"dropped"`        // packets, by whatever
	PassedPerSecond  float64     `json:"passedPerSecond"`
	DroppedPerSecond float64     `json:"droppedPerSecond"`
	Problem          string      `json:"problem,omitempty"` // why the rules of the ConfigMap are not those that hold

	changed time.Time // see Filter
}

// RuleCount is a rule and the packets that it decided since the rules changed last.
type RuleCount struct {
	Rule    string `json:"rule"`
	Packets uint64 `json:"packets"`
}

// Run follows the ConfigMap until ctx ends. The table stays then: a container that is restarted finds it in force.
func (f *Filter) Run(ctx context.Context) error {
	f.problem = "the ConfigMap was not read yet"
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return f.page().serve(ctx, f.Listen) })
	group.Go(func() error { return f.follow(ctx) })
	return group.Wait()
}

// follow applies each version of the ConfigMap.
func (f *Filter) follow(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(f.Client, 0, informers.WithNamespace(f.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.ConfigMap).String()
		}))
	informer := factory.Core().V1().ConfigMaps().Informer()
	changed := make(chan struct{}, 1)
	signal := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal() },
		UpdateFunc: func(any, any) { signal() },
		DeleteFunc: func(any) { signal() },
	}); err != nil {
		return fmt.Errorf("follow the ConfigMap: %w", err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}

	apply := func() {
		o, _, _ := informer.GetStore().GetByKey(f.Namespace + "/" + f.ConfigMap)
		have, _ := o.(*corev1.ConfigMap)
		f.apply(ctx, have)
	}
	f.found = f.Table.Exists(ctx)
	apply()
	tick := time.NewTicker(f.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			apply()
		case <-tick.C:
			if f.isTroubled() {
				apply()
			}
			f.report(ctx)
		}
	}
}

// apply has the kernel obey a ConfigMap; nil is one that is not there.
func (f *Filter) apply(ctx context.Context, have *corev1.ConfigMap) {
	rules, err := f.read(have)
	reason, changed := reasonRefused, false
	if err == nil {
		reason = reasonNotApplied
		changed, err = f.Table.Set(ctx, rules)
	}
	if err == nil {
		f.mu.Lock()
		f.rules = rules // as the counters are
		if changed {
			f.changed = time.Now()
		}
		f.mu.Unlock()
		err = f.Open()
	}
	if ctx.Err() != nil {
		return
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.problem = excerpt.Line(err.Error())
		f.refuse(have, reason)
		return
	}
	if changed || f.problem != "" {
		f.Log.Info("rules are applied", "rules", len(rules))
		f.Events.Eventf(have, corev1.EventTypeNormal, reasonApplied, "%d rules are applied", len(rules))
	}
	f.holds, f.problem, f.reported = true, "", ""
}

// read returns the rules of a ConfigMap.
func (f *Filter) read(have *corev1.ConfigMap) ([]Rule, error) {
	if have == nil {
		return nil, fmt.Errorf("ConfigMap %s/%s is not there; create it with the key %s", f.Namespace, f.ConfigMap, RulesKey)
	}
	text, ok := have.Data[RulesKey]
	if !ok {
		return nil, fmt.Errorf("the ConfigMap has no key %s; write %s: '[]' to let everything pass", RulesKey, RulesKey)
	}
	return ParseRules(text)
}

// refuse says once of each version what is wrong with it, and what holds in its place.
func (f *Filter) refuse(have *corev1.ConfigMap, reason string) {
	version := ""
	if have != nil {
		version = have.ResourceVersion
	}
	key := version + " " + f.problem
	if key == f.reported {
		return
	}
	f.reported = key

	rest := "nothing is forwarded until that is corrected"
	if f.holds || f.found {
		rest = "the rules of before hold"
	}
	f.Log.Error("rules are not applied", "problem", f.problem, "so", rest)
	if have != nil {
		f.Events.Eventf(have, corev1.EventTypeWarning, reason, "%s; %s", f.problem, rest)
	}
}

func (f *Filter) isTroubled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problem != ""
}

// ready is an error until rules hold.
func (f *Filter) ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.holds {
		return errors.New(f.problem)
	}
	return nil
}

// measure reads the counters.
func (f *Filter) measure(ctx context.Context) (Filtering, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Filtering{
		Rules: []RuleCount{}, Problem: f.problem,
		PassedPerSecond: f.passed.rate(), DroppedPerSecond: f.dropped.rate(), changed: f.changed,
	}
	if !f.holds {
		return s, nil
	}

	counts, err := f.Table.Count(ctx, len(f.rules))
	if err != nil {
		return Filtering{}, err
	}
	for i, n := range counts.Rules {
		s.Rules = append(s.Rules, RuleCount{f.rules[i].String(), n.Packets})
	}
	forwarded, dropped := counts.divide(f.rules)
	s.Passed, s.Dropped = counts.Passed.Packets, dropped.Packets
	s.Forwarded, s.ForwardedBytes = forwarded.Packets, forwarded.Bytes
	return s, nil
}

// report writes a line about the traffic.
func (f *Filter) report(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.holds {
		return
	}
	counts, err := f.Table.Count(ctx, len(f.rules))
	if err != nil {
		f.Log.Warn("counters cannot be read", "error", err)
		return
	}

	passed, dropped := counts.divide(f.rules)
	at := time.Now()
	f.Log.Info("forwarded", "packets_per_second", f.passed.advance(passed.Packets, at),
		"dropped_per_second", f.dropped.advance(dropped.Packets, at), "rules", len(f.rules))
}

func (f *Filter) page() page {
	return page{
		Now:     func(ctx context.Context) (any, error) { return f.measure(ctx) },
		Ready:   f.ready,
		Metrics: []prometheus.Collector{filterCollector{f}},
		Log:     f.Log,
	}
}

// filterCollector reads the counters at each scrape.
type filterCollector struct{ *Filter }

var (
	descRule = prometheus.NewDesc("chain_rule_packets_total",
		"Packets that a rule of the firewall decided, since the rules changed last.", []string{"number", "rule"}, nil)
	descUnmatched = prometheus.NewDesc("chain_unmatched_packets_total",
		"Packets that passed the firewall since no rule fitted, since the rules changed last.", nil, nil)
	descForwarded = prometheus.NewDesc(counters.ForwardedPackets,
		"Packets that passed the firewall, by whatever rule, since the rules changed last.", nil, nil)
	descForwardedBytes = prometheus.NewDesc(counters.ForwardedBytes,
		"Bytes of these, with the headers of IP and above.", nil, nil)
	descDropped = prometheus.NewDesc(counters.DroppedPackets,
		"Packets that the firewall dropped, since the rules changed last.", nil, nil)
	descChanged = prometheus.NewDesc(counters.RulesChanged,
		"When the rules that hold were given to the kernel, and the counters began at zero.", nil, nil)
	descRefused = prometheus.NewDesc(counters.RulesRefused,
		"1 while the rules of the ConfigMap are not those that hold.", nil, nil)
)

// Describe implements prometheus.Collector.
func (filterCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descRule, descUnmatched, descForwarded, descForwardedBytes, descDropped, descChanged, descRefused,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c filterCollector) Collect(to chan<- prometheus.Metric) {
	s, err := c.measure(context.Background())
	if err != nil {
		to <- prometheus.NewInvalidMetric(descDropped, err)
		return
	}

	refused := 0.0
	if s.Problem != "" {
		refused = 1
	}
	if !s.changed.IsZero() {
		began := float64(s.changed.UnixMilli()) / 1000
		to <- prometheus.MustNewConstMetric(descChanged, prometheus.GaugeValue, began)
	}
	to <- prometheus.MustNewConstMetric(descRefused, prometheus.GaugeValue, refused)
	to <- prometheus.MustNewConstMetric(descUnmatched, prometheus.CounterValue, float64(s.Passed))
	to <- prometheus.MustNewConstMetric(descForwarded, prometheus.CounterValue, float64(s.Forwarded))
	to <- prometheus.MustNewConstMetric(descForwardedBytes, prometheus.CounterValue, float64(s.ForwardedBytes))
	to <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(s.Dropped))
	for i, r := range s.Rules {
		to <- prometheus.MustNewConstMetric(descRule, prometheus.CounterValue, float64(r.Packets), fmt.Sprint(i+1), r.Rule)
	}
}
