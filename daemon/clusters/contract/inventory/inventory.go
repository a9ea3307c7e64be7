// Package inventory reads hosts.ini, the list of a cluster's nodes and their roles, in the form that
// KUD, kubespray and Ansible use (docs/kud.md). The operator writes it; a person may as well.
package inventory

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Node is one machine of the cluster.
type Node struct {
	Label        string // its name in the cluster
	Addr         netip.Addr
	Port         uint16 // of SSH; 22 if the inventory says nothing
	User         string // root if the inventory says nothing
	Password     string // only where no key is known: virtual machines of a test
	ControlPlane bool
	Worker       bool // takes the pods of whoever uses the cluster
}

// SSH is where the node answers.
func (n Node) SSH() netip.AddrPort { return netip.AddrPortFrom(n.Addr, n.Port) }

// Inventory is the nodes in the order of the file's group all.
type Inventory struct{ Nodes []Node }

// ControlPlanes are the nodes that run the control plane, in the file's order.
func (i Inventory) ControlPlanes() []Node {
	return slices.DeleteFunc(slices.Clone(i.Nodes), func(n Node) bool { return !n.ControlPlane })
}

// The groups that give a node its roles: KUD's names, and kubespray's of today.
var (
	controlPlaneGroups = []string{"kube-master", "kube_control_plane", "kube-control-plane"}
	workerGroups       = []string{"kube-node", "kube_node"}
)

const limit = 1 << 20 // bytes; a cluster of 5,000 nodes has a tenth of it

// label is what Kubernetes takes as a node's name and a file name may be (RFC 1123).
var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// group is a section of the file.
type group struct {
	hosts    []string
	children []string
	vars     map[string]string
}

// file is what was read, before it means anything.
type file struct {
	order  []string                     // hosts as they first appear
	hosts  map[string]map[string]string // variables of each
	groups map[string]*group
}

// Parse reads hosts.ini. It says all that is wrong with it at once, each with its line or host.
func Parse(text []byte) (Inventory, error) {
	f, err := readFile(text)
	if err != nil {
		return Inventory{}, err
	}

	var inv Inventory
	var wrong []error
	masters, workers := f.groupHosts(controlPlaneGroups), f.groupHosts(workerGroups)
	for _, name := range f.order {
		if !masters[name] && !workers[name] {
			continue // listed for something that is no node of Kubernetes
		}

		n, err := f.node(name)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}

		n.ControlPlane, n.Worker = masters[name], workers[name]
		inv.Nodes = append(inv.Nodes, n)
	}

	wrong = append(wrong, check(inv)...)
	if len(wrong) > 0 {
		return Inventory{}, errors.Join(wrong...)
	}

	return inv, nil
}

// check holds what must be true of the nodes together.
func check(inv Inventory) (wrong []error) {
	at := map[netip.AddrPort]string{}
	for _, n := range inv.Nodes {
		if other, twice := at[n.SSH()]; twice {
			wrong = append(wrong, fmt.Errorf("hosts %s and %s have the same address %s", other, n.Label, n.Addr))
		}
		at[n.SSH()] = n.Label
	}

	if err := CheckControlPlanes(len(inv.ControlPlanes())); err != nil {
		wrong = append(wrong, fmt.Errorf("group kube-master: %w", err))
	}

	return wrong
}

// CheckControlPlanes says why a cluster cannot have so many control planes; nil if it can. Two and four
// work, and bear the loss of no more than one and three do.
func CheckControlPlanes(n int) error {
	switch {
	case n == 0:
		return errors.New("no node is a control plane; name one, three or five")
	case n > 5:
		return fmt.Errorf(
			"%d control planes are too many, each write waits for more than half of them; name one, three or five", n,
		)
	}
	return nil
}

// CheckLabel says why a node cannot have a label; nil if it can.
func CheckLabel(name string) error {
	if !label.MatchString(name) {
		return errors.New("not a node's name; use small letters, digits and hyphens, at most 63")
	}
	return nil
}

func (f *file) node(name string) (Node, error) {
	if err := CheckLabel(name); err != nil {
		return Node{}, fmt.Errorf("host %q: %w", name, err)
	}

	vars := f.hostVariables(name)
	n := Node{Label: name, Port: 22, User: "root", Password: firstValue(vars, "ansible_password", "ansible_ssh_pass")}
	address := firstValue(vars, "ansible_host", "ansible_ssh_host", "ip", "access_ip")
	if address == "" {
		address = name
	}

	addr, err := netip.ParseAddr(address)
	if err != nil {
		return Node{}, fmt.Errorf("host %s: %q is not an address; give ansible_ssh_host=", name, address)
	}

	n.Addr = addr
	if text := firstValue(vars, "ansible_port", "ansible_ssh_port"); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return Node{}, fmt.Errorf("host %s: port %q is not 1 to 65535", name, text)
		}
		n.Port = uint16(port)
	}

	if user := firstValue(vars, "ansible_user", "ansible_ssh_user"); user != "" {
		n.User = user
	}

	return n, nil
}

func firstValue(vars map[string]string, names ...string) string {
	for _, n := range names {
		if v := vars[n]; v != "" {
			return v
		}
	}
	return ""
}

// hostVariables of a host: those of [all:vars], then its own.
func (f *file) hostVariables(host string) map[string]string {
	all := map[string]string{}
	if g := f.groups["all"]; g != nil {
		for k, v := range g.vars {
			all[k] = v
		}
	}

	for k, v := range f.hosts[host] {
		all[k] = v
	}

	return all
}

// groupHosts are the hosts of groups and of those groups' children.
func (f *file) groupHosts(names []string) map[string]bool {
	hosts, seen := map[string]bool{}, map[string]bool{}
	for todo := slices.Clone(names); len(todo) > 0; todo = todo[1:] {
		g := f.groups[todo[0]]
		if g == nil || seen[todo[0]] {
			continue
		}

		seen[todo[0]] = true
		for _, h := range g.hosts {
			hosts[h] = true
		}

		todo = append(todo, g.children...)
	}
	return hosts
}

// readFile takes the file apart: [group], [group:children], [group:vars].
func readFile(text []byte) (*file, error) {
	if len(text) > limit {
		return nil, fmt.Errorf("the inventory has %d bytes, more than %d", len(text), limit)
	}

	f := &file{hosts: map[string]map[string]string{}, groups: map[string]*group{}}
	section, kind := "ungrouped", ""
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if line[0] == '[' {
			name, rest, closed := strings.Cut(line[1:], "]")
			rest = strings.TrimSpace(rest)
			if !closed || rest != "" && rest[0] != '#' && rest[0] != ';' {
				return nil, fmt.Errorf("line %d: %q is not [group]", number, line)
			}

			section, kind, _ = strings.Cut(strings.TrimSpace(name), ":")
			if section == "" || kind != "" && kind != "children" && kind != "vars" {
				return nil, fmt.Errorf("line %d: %q is not [group], [group:children] or [group:vars]", number, line)
			}

			f.group(section)
			continue
		}
		if err := f.addLine(section, kind, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}

	return f, nil
}

func (f *file) group(name string) *group {
	g := f.groups[name]
	if g == nil {
		g = &group{vars: map[string]string{}}
		f.groups[name] = g
	}
	return g
}

func (f *file) addLine(section, kind, line string) error {
	g := f.group(section)
	if kind == "vars" {
		key, value, _ := strings.Cut(line, "=")
		g.vars[strings.TrimSpace(key)] = unquote(strings.TrimSpace(value))
		return nil
	}

	words, err := split(line)
	if err != nil {
		return err
	}
	if kind == "children" {
		g.children = append(g.children, words[0])
		return nil
	}

	name := words[0]
	if strings.ContainsAny(name, "[]") {
		return fmt.Errorf("host %q is a range; write each host on its own line", name)
	}

	if f.hosts[name] == nil {
		f.hosts[name] = map[string]string{}
		f.order = append(f.order, name)
	}

	g.hosts = append(g.hosts, name)
	for _, w := range words[1:] {
		key, value, found := strings.Cut(w, "=")
		if !found {
			return fmt.Errorf("host %s: %q is not name=value", name, w)
		}
		f.hosts[name][key] = value
	}

	return nil
}

// split divides a line into words; quotes hold words together, # begins a comment.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	var quote rune
	started := false
	end := func() {
		if started {
			words = append(words, word.String())
		}
		word.Reset()
		started = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, started = r, true
		case r == ' ' || r == '\t':
			end()
		case r == '#' && !started:
			return words, nil
		default:
			word.WriteRune(r)
			started = true
		}
	}

	if quote != 0 {
		return nil, fmt.Errorf("%q is not closed", quote)
	}

	end()
	if len(words) == 0 {
		return nil, errors.New("nothing is named")
	}

	return words, nil
}

func unquote(s string) string {
	if n := len(s); n >= 2 && (s[0] == '"' || s[0] == '\'') && s[n-1] == s[0] {
		return s[1 : n-1]
	}
	return s
}
