// Package chain is the sample of a service function chain: a generator on one network of pods, a firewall that has a
// second one, too, and forwards between them, and a sink on the second. Each is a pod of its own; the add-on multus
// attaches them (daemon/clusters/kpa/builtin/service-chain).
package chain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/assets/excerpt"
)

// Action is what becomes of a packet.
type Action string

// What a rule may do.
const (
	Accept Action = "accept"
	Drop   Action = "drop"
)

// Rule says what becomes of packets that cross the firewall, in either direction. The first rule that fits decides, and
// what none fits passes. Packets are judged one by one: no connection is tracked.
type Rule struct {
	Protocol    string       // tcp, udp or icmp; "" is any
	From, To    netip.Prefix // of IPv4; zero is any
	First, Last uint16       // destination ports, of tcp and udp alone; zero is any
	Limit       Limit
	Action      Action
}

// Limit is how many packets fit. With Accept the rule is for those within it, with Drop for those beyond. Zero is none.
type Limit struct {
	Packets int
	Unit    string // second, minute or hour
}

const (
	maxRules  = 256
	maxLimit  = 10_000_000
	maxPort   = 65535
	minBurst  = 5  // packets that may come at once
	burstPart = 10 // and the part of a unit's packets that may
)

// ruleText is a rule as people write it.
type ruleText struct {
	Protocol string              `json:"protocol"`
	From     string              `json:"from"`
	To       string              `json:"to"`
	Port     *intstr.IntOrString `json:"port"`
	Limit    string              `json:"limit"`
	Action   string              `json:"action"`
}

// ParseRules reads a list in YAML, such as
//
//   - {protocol: udp, from: 198.18.0.0/24, port: 9000-9010, limit: 100/second, action: drop}
//
// An empty text has no rules. An error is one sentence that names the rule, by its number, and what to write.
func ParseRules(text string) ([]Rule, error) {
	document, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("the rules cannot be read: %s; write a list such as %s", excerpt.Line(err.Error()), example)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(document, &items); err != nil {
		return nil, fmt.Errorf("the rules are no list; write one such as %s, or [] to let everything pass", example)
	}
	if len(items) > maxRules {
		return nil, fmt.Errorf("there are %d rules; write %d at most", len(items), maxRules)
	}

	var all []Rule
	for i, item := range items {
		r, err := parseRule(item)
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		all = append(all, r)
	}
	return all, nil
}

const example = "- {protocol: udp, port: 9000, limit: 100/second, action: drop}"

func parseRule(item []byte) (r Rule, err error) {
	var text ruleText
	decoder := json.NewDecoder(bytes.NewReader(item))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&text); err != nil {
		return Rule{}, fmt.Errorf(
			"it cannot be read: %s; a rule has protocol, from, to, port, limit and action", excerpt.Line(err.Error()),
		)
	}

	switch text.Protocol {
	case "", "tcp", "udp", "icmp":
		r.Protocol = text.Protocol
	default:
		return Rule{}, fmt.Errorf("protocol %q is not known; write udp, tcp or icmp", text.Protocol)
	}
	if r.From, err = parseNetwork("from", text.From); err != nil {
		return Rule{}, err
	}
	if r.To, err = parseNetwork("to", text.To); err != nil {
		return Rule{}, err
	}
	if text.Port != nil {
		if r.Protocol != "tcp" && r.Protocol != "udp" {
			return Rule{}, errors.New("a port belongs to a protocol; write protocol: udp or protocol: tcp")
		}
		if r.First, r.Last, err = parsePorts(text.Port.String()); err != nil {
			return Rule{}, err
		}
	}
	if r.Limit, err = parseLimit(text.Limit); err != nil {
		return Rule{}, err
	}

	switch a := Action(text.Action); a {
	case Accept, Drop:
		r.Action = a
	case "":
		return Rule{}, errors.New("action is missing; write action: accept or action: drop")
	default:
		return Rule{}, fmt.Errorf("action %q is not known; write accept or drop", text.Action)
	}
	return r, nil
}

// parseNetwork reads an address or a network of IPv4; "" is any.
func parseNetwork(field, text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}

	p, err := netip.ParsePrefix(text)
	if a, addrErr := netip.ParseAddr(text); addrErr == nil {
		p, err = netip.PrefixFrom(a, a.BitLen()), nil
	}
	switch {
	case err != nil || !p.Addr().Is4():
		return netip.Prefix{}, fmt.Errorf(
			"%s %q is no IPv4 address or network; write one such as 198.18.0.10 or 198.18.0.0/24", field, text,
		)
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("%s %q is an address within a network; write %s or %s",
			field, text, p.Masked(), p.Addr())
	}
	return p, nil
}

func parsePorts(text string) (first, last uint16, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	a, errA := strconv.ParseUint(strings.TrimSpace(from), 10, 16)
	b, errB := strconv.ParseUint(strings.TrimSpace(to), 10, 16)
	if errA != nil || errB != nil || a == 0 || b < a {
		return 0, 0, fmt.Errorf(
			"port %q is no port; write a number from 1 to %d, or a range such as 9000-9010", text, maxPort,
		)
	}
	return uint16(a), uint16(b), nil
}

func parseLimit(text string) (Limit, error) {
	if text == "" {
		return Limit{}, nil
	}

	count, unit, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(count)
	switch unit {
	case "second", "minute", "hour":
	default:
		err = errors.New("no unit")
	}
	if err != nil || n < 1 || n > maxLimit {
		return Limit{}, fmt.Errorf(
			"limit %q is none; write 1 to %d packets per second, minute or hour, such as 100/second", text, maxLimit,
		)
	}
	return Limit{n, unit}, nil
}

func (l Limit) String() string { return fmt.Sprintf("%d/%s", l.Packets, l.Unit) }

// burst is how many packets may come at once.
func (l Limit) burst() int { return max(minBurst, l.Packets/burstPart) }

// String is the rule as it may be written.
func (r Rule) String() string {
	var fields []string
	add := func(name, value string) { fields = append(fields, name+": "+value) }
	if r.Protocol != "" {
		add("protocol", r.Protocol)
	}
	if r.From.IsValid() {
		add("from", networkText(r.From))
	}
	if r.To.IsValid() {
		add("to", networkText(r.To))
	}
	if r.First != 0 {
		add("port", r.ports())
	}
	if r.Limit != (Limit{}) {
		add("limit", r.Limit.String())
	}
	add("action", string(r.Action))
	return "{" + strings.Join(fields, ", ") + "}"
}

func (r Rule) ports() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// networkText leaves out the length of a single address.
func networkText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
