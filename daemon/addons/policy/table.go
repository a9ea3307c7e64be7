package policy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"time"

	"go4.org/netipx"
	"sigs.k8s.io/knftables"
)

// TableName is the name of the nftables table of family inet.
const TableName = "firstlight-policy"

// nftTimeout bounds one run of nft.
const nftTimeout = time.Minute

// Table is the table of this node.
type Table struct {
	nft           knftables.Interface
	list          func(context.Context) (string, error)
	text, listing string // as it was written, and as the kernel then had it
}

// NewTable asks whether nft works here.
func NewTable() (*Table, error) {
	nft, err := knftables.New(knftables.InetFamily, TableName)
	if err != nil {
		return nil, fmt.Errorf("open table %s: %w", TableName, err)
	}
	return &Table{nft: nft, list: list}, nil
}

// Set replaces the table by what a plan wants, in one transaction: packets meet the old one or the new one, never none.
// A table that is as wanted is left, with its counters. It reports whether something changed.
func (t *Table) Set(ctx context.Context, p Plan) (changed bool, err error) {
	tx := t.nft.NewTransaction()
	p.write(tx)
	text := tx.String()
	if text == t.text {
		return false, nil
	}

	t.text = ""
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	if err := t.nft.Run(ctx, tx); err != nil {
		return false, fmt.Errorf("set table %s: %w", TableName, err)
	}
	if t.listing, err = t.list(ctx); err != nil {
		return true, err
	}

	t.text = text
	return true, nil
}

// ErrChanged says that somebody else changed the table.
var ErrChanged = errors.New("the table is not as it was written")

// CheckUnchanged compares the table with what was written. After an error, Set writes it again.
func (t *Table) CheckUnchanged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	listing, err := t.list(ctx)
	if err == nil && listing != t.listing {
		err = ErrChanged
	}
	if err != nil {
		t.text = ""
	}
	return err
}

// Remove deletes the table if there is one: every pod is open then.
func (t *Table) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	tx := t.nft.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	t.text = ""
	if err := t.nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("remove table %s: %w", TableName, err)
	}
	return nil
}

// list is the table as the kernel has it, without its counters.
func list(ctx context.Context) (string, error) {
	var said strings.Builder
	cmd := exec.CommandContext(ctx, "nft", "--stateless", "list", "table", "inet", TableName)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("list table %s: %w: %s", TableName, err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}

// side is what differs between the directions.
type side struct {
	name     string // of the base chain
	priority knftables.BaseChainPriority
	own      string // the field of a packet that holds the pod's address
	other    string // the field that holds the peer's
}

// An accept ends one base chain. Each direction has its own, so that a packet between two pods of the node is judged by
// the sender's rules and by the receiver's.
var sides = []side{
	{name: "egress", priority: knftables.FilterPriority + "-2", own: "saddr", other: "daddr"},
	{name: "ingress", priority: knftables.FilterPriority + "-1", own: "daddr", other: "saddr"},
}

// write adds to a transaction what makes the table that of the plan, whatever there is now.
func (p Plan) write(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{})

	for _, s := range sides {
		d := p.Ingress
		if s.name == "egress" {
			d = p.Egress
		}
		w := writer{tx: tx, side: s, peers: map[*Peers]string{}, endpoints: map[*Endpoints]string{}}
		w.writeBase(d)
		for i, o := range d.Isolated {
			w.writePod(i+1, o)
		}
	}
}

// writer writes one direction.
type writer struct {
	tx *knftables.Transaction
	side
	peers     map[*Peers]string // names of their sets
	endpoints map[*Endpoints]string
}

// family is what a set or an expression of one is named by.
type family struct{ header, addr string }

var (
	ipv4     = family{"ip", "ipv4_addr"}
	ipv6     = family{"ip6", "ipv6_addr"}
	families = []family{ipv4, ipv6}
)

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// writeBase writes the chain that packets meet, and the maps that send those of isolated pods on to a chain of their own.
func (w writer) writeBase(d Direction) {
	w.tx.Add(&knftables.Chain{
		Name:     w.name,
		Type:     knftables.PtrTo(knftables.FilterType),
		Hook:     knftables.PtrTo(knftables.ForwardHook),
		Priority: knftables.PtrTo(w.priority),
	})
	for _, f := range families {
		w.tx.Add(&knftables.Map{Name: w.mapName(f), Type: f.addr + " : verdict"})
	}

	if w.name == "egress" {
		// A pod does not borrow the address of another one, which may be allowed more. Plugin ptp names a pod's interface.
		w.rule("", `iifname "veth*" fib saddr . iif oif missing counter drop`, "not the address of the pod")
	}
	w.rule("", "ct state established,related accept", "")
	if d.Starting != nil {
		for _, f := range w.addSet(w.name+"-starting", "free addresses: an isolated pod starts", d.Starting) {
			w.rule("", fmt.Sprintf("%s %s @%s-starting-%s counter drop", f.header, w.own, w.name, f.header), "")
		}
	}
	for _, f := range families {
		w.rule("", fmt.Sprintf("%s %s vmap @%s", f.header, w.own, w.mapName(f)), "")
	}
}

func (w writer) mapName(f family) string { return w.name + "-pods-" + f.header }

// rule adds one to a chain; "" is the base chain.
func (w writer) rule(chain, text, comment string) {
	if chain == "" {
		chain = w.name
	}
	w.tx.Add(&knftables.Rule{Chain: chain, Rule: text, Comment: remark(comment)})
}

// remark is a comment, or none, as long as nft takes it.
func remark(text string) *string {
	if text == "" {
		return nil
	}
	return knftables.PtrTo(text[:min(len(text), knftables.CommentLengthMax-1)])
}

// writePod writes the chain of an isolated pod.
func (w writer) writePod(number int, o Isolation) {
	chain := fmt.Sprintf("%s-%d", w.name, number)
	w.tx.Add(&knftables.Chain{Name: chain, Comment: remark(o.Pod)})
	for _, a := range o.Addrs {
		f := familyOf(a)
		w.tx.Add(&knftables.Element{Map: w.mapName(f), Key: []string{a.String()}, Value: []string{"goto " + chain}})
		w.rule(chain, fmt.Sprintf("%s %s %s accept", f.header, w.other, a), "itself, by a Service")
	}
	for _, a := range o.Allow {
		for _, text := range w.conditions(a) {
			w.rule(chain, strings.TrimSpace(text+" accept"), "")
		}
	}
	w.rule(chain, "counter drop", o.Pod)
}

// conditions are those of the rules for what is allowed, one for each family that it is about.
func (w writer) conditions(a Allow) (all []string) {
	if a.Endpoints != nil {
		name := w.endpointsName(a.Endpoints)
		for _, f := range families {
			if hasFamily(a.Endpoints, f) {
				all = append(all, fmt.Sprintf("%s daddr . meta l4proto . th dport @%s-%s", f.header, name, f.header))
			}
		}
		return all
	}

	port := ""
	switch protocol := strings.ToLower(string(a.Protocol)); {
	case protocol == "":
	case a.First == 0 && a.Last == 0:
		port = " meta l4proto " + protocol
	case a.First == a.Last:
		port = fmt.Sprintf(" %s dport %d", protocol, a.First)
	default:
		port = fmt.Sprintf(" %s dport %d-%d", protocol, a.First, a.Last)
	}
	if a.Peers == nil {
		return []string{strings.TrimSpace(port)}
	}

	name, ok := w.peers[a.Peers]
	if !ok {
		name = fmt.Sprintf("%s-peers-%d", w.name, len(w.peers)+1)
		w.peers[a.Peers] = name
		w.addSet(name, a.Peers.Rule, a.Peers.Addrs)
	}
	for _, f := range familiesOf(a.Peers.Addrs) {
		all = append(all, fmt.Sprintf("%s %s @%s-%s%s", f.header, w.other, name, f.header, port))
	}
	return all
}

func familiesOf(set *netipx.IPSet) (all []family) {
	for _, f := range families {
		for _, r := range set.Ranges() {
			if familyOf(r.From()) == f {
				all = append(all, f)
				break
			}
		}
	}
	return all
}

// addSet writes a set of addresses for each family that it has, and returns these.
func (w writer) addSet(name, comment string, set *netipx.IPSet) []family {
	all := familiesOf(set)
	for _, f := range all {
		w.tx.Add(&knftables.Set{
			Name:    name + "-" + f.header,
			Type:    f.addr,
			Flags:   []knftables.SetFlag{knftables.IntervalFlag},
			Comment: remark(comment),
		})
	}
	for _, p := range set.Prefixes() {
		key := p.String()
		if p.IsSingleIP() {
			key = p.Addr().String()
		}
		w.tx.Add(&knftables.Element{Set: name + "-" + familyOf(p.Addr()).header, Key: []string{key}})
	}
	return all
}

func hasFamily(e *Endpoints, f family) bool {
	for _, one := range e.All {
		if familyOf(one.Addr) == f {
			return true
		}
	}
	return false
}

// endpointsName is the name of the sets of endpoints, which are written if they are not yet.
func (w writer) endpointsName(e *Endpoints) string {
	if name, ok := w.endpoints[e]; ok {
		return name
	}

	name := fmt.Sprintf("%s-ports-%d", w.name, len(w.endpoints)+1)
	w.endpoints[e] = name
	for _, f := range families {
		if hasFamily(e, f) {
			w.tx.Add(&knftables.Set{
				Name:    name + "-" + f.header,
				Type:    f.addr + " . inet_proto . inet_service",
				Comment: remark(e.Rule),
			})
		}
	}
	for _, one := range e.All {
		w.tx.Add(&knftables.Element{
			Set: name + "-" + familyOf(one.Addr).header,
			Key: []string{one.Addr.String(), strings.ToLower(string(one.Protocol)), fmt.Sprint(one.Port)},
		})
	}
	return name
}
