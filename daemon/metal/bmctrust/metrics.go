package bmctrust

import "github.com/prometheus/client_golang/prometheus"

// Register adds what is counted here to a registry.
func (f *Forwarder) Register(to prometheus.Registerer) {
	to.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "firstlight_bmc_certificates_refused",
			Help: "BMCs that show another certificate than the pinned one, and are told no password.",
		}, func() float64 { return float64(len(f.Pins.Changes())) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "firstlight_bmc_refused_connections_total",
			Help: "Connections of Ironic's to BMCs that were ended because of the certificate.",
		}, func() float64 { return float64(f.Refused.Load()) }),
	)
}
