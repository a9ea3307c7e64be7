package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"firstlight.dev/firstlight/assets/status"
)

// StatusCollector is the collector of what the status document says.
type StatusCollector struct{ Document func() status.Document }

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("firstlight_"+name, help, labels, nil)
}

var (
	ready    = newDesc("ready", "1 while every stage of the plan holds.")
	started  = newDesc("start_time_seconds", "When the daemon started, in seconds since 1970.")
	stage    = newDesc("stage_ready", "1 while the stage holds, else 0.", "stage")
	attempts = newDesc("stage_attempts_total", "Times a stage was acted on since the daemon started.", "stage")

	node       = newDesc("node_state", "1 for the state that the node is in.", "node", "state", "situation")
	verified   = newDesc("node_proven", "1 if every check of the node's launch held, else 0.", "node")
	percent    = newDesc("node_progress_ratio", "How far the node is on its way to proven, 0 to 1.", "node")
	nodeAction = newDesc("node_needs_action", "1 while a person must do something about the node, else 0.", "node")

	launch    = newDesc("launch_state", "1 for the state that the launch is in.", "state")
	launchFor = newDesc("launch_elapsed_seconds", "Time that the launch took so far, counted while the appliance ran.")

	cluster       = newDesc("cluster_state", "1 for the state that the cluster is in.", "cluster", "state")
	clusterAction = newDesc("cluster_needs_action", "1 while the cluster has failed or is refused, else 0.", "cluster")
	component     = newDesc(
		"component_state", "1 for the state that the component is in on the cluster.", "component", "cluster", "state",
	)

	networkDHCP = newDesc("network_dhcp_state", "1 for the state of DHCP on bmc and baremetal.", "network", "state")
	awayFailed  = newDesc("away_copy_failed", "1 if the last try to make an away copy failed, else 0.")
	sourceState = newDesc("source_state", "1 for the state of the source that the site follows.", "state")
	sourceSince = newDesc("source_behind_timestamp_seconds", "Since when the appliance is not as its source says, or does not know, in seconds since 1970.")
	awayMade    = newDesc("away_copy_timestamp_seconds", "When the last whole away copy was made, in seconds since 1970.")
)

// Describe implements prometheus.Collector.
func (StatusCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		ready, started, stage, attempts, node, verified, percent, nodeAction, launch, launchFor, cluster, clusterAction,
		component, networkDHCP, awayFailed, awayMade, sourceState, sourceSince,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s StatusCollector) Collect(to chan<- prometheus.Metric) {
	d := s.Document()
	put := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	put(ready, boolValue(d.State == status.StateReady))
	put(started, float64(d.Started.Unix()))
	for _, one := range d.Stages {
		put(stage, boolValue(one.State == status.StateReady), one.Name)
		to <- prometheus.MustNewConstMetric(attempts, prometheus.CounterValue, float64(one.Attempts), one.Name)
	}

	attention := d.Attention()
	for _, n := range d.Nodes {
		put(node, 1, n.Name, n.State, n.Rule)
		put(verified, boolValue(n.Verified), n.Name)
		put(percent, float64(n.Percent)/100, n.Name)
		put(nodeAction, boolValue(slices.Contains(attention.Nodes, n.Name)), n.Name)
	}

	if d.Launch.State != "" {
		put(launch, 1, string(d.Launch.State))
		put(launchFor, d.Launch.Elapsed)
	}

	for _, c := range d.Clusters {
		put(cluster, 1, c.Name, c.State)
		put(clusterAction, boolValue(slices.Contains(attention.Clusters, c.Name)), c.Name)
	}

	for _, c := range d.Components {
		for _, on := range c.On {
			put(component, 1, c.Name, on.Cluster, on.State)
		}
	}

	for _, a := range d.Addresses {
		if a.DHCP != "" {
			put(networkDHCP, 1, a.Role, a.DHCP)
		}
	}

	if s := d.Source; s != nil {
		put(sourceState, 1, string(s.State))
		if !s.Behind.IsZero() {
			put(sourceSince, float64(s.Behind.Unix()))
		}
	}

	if d.AwayCopy != nil {
		put(awayFailed, boolValue(d.AwayCopy.Error != ""))
		if !d.AwayCopy.Made.IsZero() {
			put(awayMade, float64(d.AwayCopy.Made.Unix()))
		}
	}
}

func boolValue(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
