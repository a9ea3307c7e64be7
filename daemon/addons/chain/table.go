package chain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/knftables"
)

// TableName is the name of the nftables table of family ip, in the firewall's own network namespace.
const TableName = "firstlight-chain"

// nftTimeout bounds one run of nft.
const nftTimeout = 30 * time.Second

// Names of counters besides those of the rules.
const (
	counterPassed    = "passed"    // what no rule fits
	counterFragments = "fragments" // parts of packets, which have no port to judge them by
	counterStray     = "stray"     // what would leave by another interface than the two of the chain
)

func counterOf(rule int) string { return fmt.Sprintf("rule-%d", rule+1) }

// Table is what the firewall's kernel does with packets.
type Table struct {
	nft     knftables.Interface
	in, out string // the firewall's interfaces
	text    string // as it was written
}

// NewTable asks whether nft works here. Packets are forwarded between the two interfaces.
func NewTable(in, out string) (*Table, error) {
	nft, err := knftables.New(knftables.IPv4Family, TableName)
	if err != nil {
		return nil, fmt.Errorf("open table %s: %w", TableName, err)
	}
	return &Table{nft: nft, in: in, out: out}, nil
}

// Set replaces the table, in one transaction: packets meet the old rules or the new ones. After an error the old ones
// stay. Rules that are there already keep their counters, and changed is false.
func (t *Table) Set(ctx context.Context, rules []Rule) (changed bool, err error) {
	tx := t.nft.NewTransaction()
	t.write(tx, rules)
	text := tx.String()
	if text == t.text {
		return false, nil
	}

	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	if err := t.nft.Run(ctx, tx); err != nil {
		return false, fmt.Errorf("set table %s: %w", TableName, err)
	}
	t.text = text
	return true, nil
}

// Exists reports whether the kernel has rules already, which an earlier container of the pod gave it.
func (t *Table) Exists(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	chains, err := t.nft.List(ctx, "chain")
	return err == nil && len(chains) > 0
}

// write adds to a transaction what makes the table that of the rules, whatever there is now.
func (t *Table) write(tx *knftables.Transaction, rules []Rule) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})
	for i := range rules {
		tx.Add(&knftables.Counter{Name: counterOf(i)})
	}
	for _, name := range []string{counterPassed, counterFragments, counterStray} {
		tx.Add(&knftables.Counter{Name: name})
	}

	const judge, forward = "rules", "forward"
	tx.Add(&knftables.Chain{Name: judge})
	tx.Add(&knftables.Chain{
		Name:     forward,
		Type:     knftables.PtrTo(knftables.FilterType),
		Hook:     knftables.PtrTo(knftables.ForwardHook),
		Priority: knftables.PtrTo(knftables.FilterPriority),
		Policy:   knftables.PtrTo(knftables.DropPolicy),
	})
	for i, r := range rules {
		tx.Add(&knftables.Rule{Chain: judge, Rule: r.render(counterOf(i))})
	}
	tx.Add(&knftables.Rule{Chain: judge, Rule: "counter name " + counterPassed + " accept"})
	for _, text := range []string{
		"ip frag-off & 0x1fff != 0 counter name " + counterFragments + " drop",
		fmt.Sprintf("iifname %q oifname %q goto %s", t.in, t.out, judge),
		fmt.Sprintf("iifname %q oifname %q goto %s", t.out, t.in, judge),
		"counter name " + counterStray + " drop",
	} {
		tx.Add(&knftables.Rule{Chain: forward, Rule: text})
	}
}

// render writes a rule in nft's words (nft(8)).
func (r Rule) render(counter string) string {
	var parts []string
	if r.From.IsValid() {
		parts = append(parts, "ip saddr "+networkText(r.From))
	}
	if r.To.IsValid() {
		parts = append(parts, "ip daddr "+networkText(r.To))
	}
	switch {
	case r.First != 0:
		parts = append(parts, r.Protocol+" dport "+r.ports())
	case r.Protocol != "":
		parts = append(parts, "ip protocol "+r.Protocol)
	}

	if r.Limit != (Limit{}) {
		over := ""
		if r.Action == Drop {
			over = "over "
		}
		parts = append(parts, fmt.Sprintf("limit rate %s%s burst %d packets", over, r.Limit, r.Limit.burst()))
	}
	parts = append(parts, "counter name "+counter, string(r.Action))
	return strings.Join(parts, " ")
}

// Count is what a counter of nftables counted.
type Count struct {
	Packets, Bytes uint64 // bytes with the headers of IP and above
}

func (c Count) add(more Count) Count { return Count{c.Packets + more.Packets, c.Bytes + more.Bytes} }

// Counts are what was counted since the rules changed last.
type Counts struct {
	Rules                    []Count // that each rule decided, in the order of the rules
	Passed, Fragments, Stray Count
}

// Count reads the counters of a table that was set with so many rules.
func (t *Table) Count(ctx context.Context, rules int) (Counts, error) {
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	all, err := t.nft.ListCounters(ctx)
	if err != nil {
		return Counts{}, fmt.Errorf("read counters of table %s: %w", TableName, err)
	}

	counted := map[string]Count{}
	for _, c := range all {
		if c != nil && c.Packets != nil && c.Bytes != nil {
			counted[c.Name] = Count{*c.Packets, *c.Bytes}
		}
	}
	counts := Counts{
		Passed: counted[counterPassed], Fragments: counted[counterFragments], Stray: counted[counterStray],
	}
	for i := range rules {
		counts.Rules = append(counts.Rules, counted[counterOf(i)])
	}
	return counts, nil
}

// divide sums up what passed and what did not.
func (c Counts) divide(rules []Rule) (passed, dropped Count) {
	passed, dropped = c.Passed, c.Fragments.add(c.Stray)
	for i, n := range c.Rules {
		if rules[i].Action == Accept {
			passed = passed.add(n)
		} else {
			dropped = dropped.add(n)
		}
	}
	return passed, dropped
}
