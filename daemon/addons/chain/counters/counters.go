// Package counters is what the parts of the service chain sample and those who read them agree on: which they are, and by
// which names of Prometheus they count. A part answers GET /metrics at the first port of its pod.
package counters

// Namespaces are those of the add-ons that bring the sample.
var Namespaces = []string{"service-chain", "service-chain-ovn4nfv"}

// Parts, in the order in which packets pass them: the values of the label app of their pods.
const (
	Generator = "generator"
	Firewall  = "firewall"
	Sink      = "sink"
)

// Parts are all, in that order.
var Parts = []string{Generator, Firewall, Sink}

// Counters of the generator, since its container started. Bytes are those of the payload.
const (
	SentPackets = "chain_sent_packets_total"
	SentBytes   = "chain_sent_bytes_total"
	SendErrors  = "chain_send_errors_total"
)

// Counters of the firewall, since its rules changed last. Bytes are with the headers of IP and above.
const (
	ForwardedPackets = "chain_forwarded_packets_total"
	ForwardedBytes   = "chain_forwarded_bytes_total"
	DroppedPackets   = "chain_dropped_packets_total"
)

// Gauges of the firewall: when its counters began, in seconds since 1970, and 1 while the rules of the ConfigMap are not
// those that hold.
const (
	RulesChanged = "chain_rules_changed_timestamp_seconds"
	RulesRefused = "chain_rules_refused"
)

// Counters of the sink, since its container started. Bytes are those of the payload.
const (
	ReceivedPackets = "chain_received_packets_total"
	ReceivedBytes   = "chain_received_bytes_total"
)

// Counters are all that grow.
var Counters = []string{
	SentPackets, SentBytes, SendErrors, ForwardedPackets, ForwardedBytes, DroppedPackets, ReceivedPackets, ReceivedBytes,
}
