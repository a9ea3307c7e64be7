package daemon

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/firewall"
	"firstlight.dev/firstlight/daemon/appliance/metrics"
)

// metricsHandler answers with all metrics of the appliance.
func (d *Daemon) metricsHandler() http.Handler {
	return metrics.Handler(&d.metricParts, metrics.StatusCollector{Document: d.Document}, metrics.MachineCollector{
		Data:         stick.DataDir,
		Proc:         "/proc",
		Certificates: certificateFiles(),
	})
}

// newHistory is the last hour of what the page draws.
func (d *Daemon) newHistory() *metrics.History {
	own := prometheus.NewRegistry()
	own.MustRegister(metrics.StatusCollector{Document: d.Document}, metrics.MachineCollector{Data: stick.DataDir, Proc: "/proc"})
	return &metrics.History{From: prometheus.Gatherers{own, &d.metricParts}, Log: d.log}
}

// certificateFiles are where the appliance keeps certificates that end: each is renewed long before.
func certificateFiles() []string {
	return []string{
		stick.DataDir + "/ca/*.crt",
		"/etc/kubernetes/pki/*.crt",
		"/etc/kubernetes/pki/etcd/*.crt",
		"/var/lib/kubelet/pki/*-current.pem",
	}
}

// serveMetricsToNetworks answers on networks whose allow says metrics.
func (d *Daemon) serveMetricsToNetworks(ctx context.Context) error {
	addresses := func() []netip.Addr {
		return firewall.Addresses(metrics.Name, d.host.Site(), d.host.Addresses())
	}
	return metrics.ServeNetworks(ctx, d.stageReady("links-up"), addresses, d.metricsHandler(), d.log)
}
