// Package metrics counts what the boot servers do, for Prometheus. One Metrics is shared
// by all of them; a nil *Metrics is not valid, New with a fresh registry serves tests.
package metrics

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the counters. Label values come from fixed sets in our code, never from
// the wire: a client must not be able to grow them.
type Metrics struct {
	DHCPOffers   prometheus.Counter
	DHCPAcks     prometheus.Counter
	DHCPNaks     prometheus.Counter
	DHCPRefusals *prometheus.CounterVec // reason: a short constant, e.g. pool-empty
	DHCPForeign  prometheus.Gauge       // 1 while a foreign DHCP server keeps us silent

	TFTPTransfers *prometheus.CounterVec // result: done, failed, refused, probed
	TFTPBytes     prometheus.Counter
	TFTPActive    prometheus.Gauge

	HTTPRequests *prometheus.CounterVec // code: status class, e.g. 2xx
	HTTPBytes    prometheus.Counter
	HTTPActive   prometheus.Gauge

	Scripts *prometheus.CounterVec // action: refuse, disk, inspect, ramdisk, script

	Panics *prometheus.CounterVec // server: dhcp, tftp, http; each one is a fault of ours
}

// New makes the counters and registers them with reg.
func New(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "firstlight",
			Subsystem: "pxe",
			Name:      name,
			Help:      help,
		})
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(
			prometheus.CounterOpts{Namespace: "firstlight", Subsystem: "pxe", Name: name, Help: help}, []string{label},
		)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "firstlight",
			Subsystem: "pxe",
			Name:      name,
			Help:      help,
		})
	}
	m := &Metrics{
		DHCPOffers:   counter("dhcp_offers_total", "DHCPOFFERs sent."),
		DHCPAcks:     counter("dhcp_acks_total", "DHCPACKs sent, each after its lease was on disk."),
		DHCPNaks:     counter("dhcp_naks_total", "DHCPNAKs sent."),
		DHCPRefusals: vector("dhcp_refusals_total", "DHCP packets not answered, by reason.", "reason"),
		DHCPForeign: gauge(
			"dhcp_foreign_server", "1 while a foreign DHCP server on the provisioning network keeps this one silent.",
		),
		TFTPTransfers: vector("tftp_transfers_total", "TFTP requests, by how they ended.", "result"),
		TFTPBytes:     counter("tftp_bytes_total", "Bytes of file contents acknowledged by TFTP clients."),
		TFTPActive:    gauge("tftp_active_transfers", "TFTP transfers under way."),
		HTTPRequests:  vector("http_requests_total", "HTTP requests, by status class.", "code"),
		HTTPBytes:     counter("http_bytes_total", "Bytes of HTTP bodies sent."),
		HTTPActive:    gauge("http_active_requests", "HTTP requests under way."),
		Scripts:       vector("scripts_total", "iPXE scripts given out, by what they do.", "action"),
		Panics: vector(
			"recovered_panics_total", "Handlers that panicked and were recovered: faults of ours.", "server",
		),
	}
	reg.MustRegister(m.DHCPOffers, m.DHCPAcks, m.DHCPNaks, m.DHCPRefusals, m.DHCPForeign, m.TFTPTransfers, m.TFTPBytes,
		m.TFTPActive, m.HTTPRequests, m.HTTPBytes, m.HTTPActive, m.Scripts, m.Panics)
	return m
}
