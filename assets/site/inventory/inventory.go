// Package inventory makes the nodes of a site document of the lists that people keep of their servers: a table (CSV),
// and what NetBox and MAAS export. What has no place in a site is told in one line each.
package inventory

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/site"
)

// File is one list: its name in messages and its bytes.
type File struct {
	Name string
	Data []byte
}

// server is what lists say of one.
type server struct {
	name     string
	bootMAC  string
	macs     []string
	bmc      string // address, or what a site calls one
	username string
	password string
	labels   map[string]string

	systemID string // MAAS' own, by which it names passwords
}

// Import makes a site document of lists; one server may be in several of them, by its name. Load must still judge it: an
// address that was wrong in a list is as wrong in the site. It holds the BMCs' passwords in clear. Notes are lines for
// people, FILE: what was left out and why. An error means that a list could not be read at all.
func Import(files []File) (document []byte, notes []string, err error) {
	r := &reader{servers: map[string]*server{}, powers: map[string]power{}}
	for _, f := range files {
		r.file = f.Name
		if err := r.read(f.Data); err != nil {
			return nil, nil, fmt.Errorf("import %s: %w", f.Name, err)
		}
	}
	r.file = files[len(files)-1].Name
	r.assignPowers()
	r.order = slices.DeleteFunc(r.order, func(name string) bool { return slices.Contains(r.skipped, name) })
	if len(r.order) == 0 {
		return nil, nil, fmt.Errorf("import %s: no server is named in it", r.file)
	}

	made := r.site()
	text, err := made.RevealedYAML()
	if err != nil {
		return nil, nil, err
	}
	return append([]byte("# The servers of this rack, imported. It may hold passwords of BMCs.\n"), text...), r.notes, nil
}

// reader collects servers from lists.
type reader struct {
	file    string
	order   []string // of names, as they were met
	servers map[string]*server
	powers  map[string]power // of MAAS, by system ID
	skipped []string         // names of those that are left out, whatever list they are in
	notes   []string
}

func (r *reader) note(format string, args ...any) {
	r.notes = append(r.notes, r.file+": "+fmt.Sprintf(format, args...))
}

func (r *reader) read(data []byte) error {
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // of spreadsheets
	if text := bytes.TrimSpace(data); len(text) > 0 && (text[0] == '{' || text[0] == '[') {
		return r.readJSON(text)
	}
	return r.readTable(data)
}

// hostName is a name without its domain.
func hostName(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(name)), ".")
	return name
}

// get is the server of a name; "" is none.
func (r *reader) get(name string) *server {
	name = hostName(name)
	if name == "" {
		return nil
	}
	if r.servers[name] == nil {
		r.servers[name] = &server{name: name, labels: map[string]string{}}
		r.order = append(r.order, name)
	}
	return r.servers[name]
}

func (s *server) addMAC(text string) {
	mac := normalizeMAC(text)
	if mac != "" && !slices.Contains(s.macs, mac) {
		s.macs = append(s.macs, mac)
	}
}

// normalizeMAC takes a MAC with any separators, or none. It leaves what is none to Load, which says where it is.
func normalizeMAC(text string) string {
	text = strings.TrimSpace(text)
	mac, err := hex.DecodeString(strings.NewReplacer(":", "", "-", "", ".", "").Replace(text))
	if err != nil || len(mac) != 6 {
		return text
	}
	return net.HardwareAddr(mac).String()
}

// setBMC notes a BMC, whose address may have a scheme, or the length of its network. One without a scheme speaks IPMI.
func (s *server) setBMC(text string) {
	text = strings.TrimSpace(text)
	if prefix, err := netip.ParsePrefix(text); err == nil {
		text = prefix.Addr().String()
	}
	if addr, err := netip.ParseAddr(text); err == nil && addr.Is6() {
		text = "[" + text + "]"
	}
	switch {
	case text == "":
	case strings.Contains(text, "://"):
		s.bmc = text
	default:
		s.bmc = "ipmi://" + text
	}
}

var labelValue = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// setLabel notes a label, whose value is made one of Kubernetes'.
func (s *server) setLabel(key, value string) {
	value = strings.Trim(labelValue.ReplaceAllString(value, "-"), "-._")
	if value != "" {
		s.labels[key] = value[:min(len(value), 63)]
	}
}

// site is the document. What all BMCs have in common is said once.
func (r *reader) site() *site.Site {
	made := &site.Site{Name: "firstlight"}
	shared := r.sharedLogin()
	if shared != nil {
		made.NodeDefaults.BMC = site.Login{Username: shared.username, Password: site.NewSecret(shared.password)}
	}
	for _, name := range r.order {
		s := r.servers[name]
		n := site.Node{Name: site.Name(s.name), BootMAC: site.MAC(s.bootMAC)}
		for _, mac := range s.macs {
			n.MACs = append(n.MACs, site.MAC(mac))
		}
		if n.BootMAC != "" && len(n.MACs) > 0 && n.MACs[0] == n.BootMAC {
			n.BootMAC = "" // the first of macs is it
		}
		switch {
		case s.bmc != "":
			n.BMC = &site.BMC{Address: site.BMCAddress(s.bmc)}
			if shared == nil {
				n.BMC.Username, n.BMC.Password = s.username, site.NewSecret(s.password)
			}
		case len(s.macs) == 0 && s.bootMAC == "":
			r.note("%s: it has neither a MAC nor a BMC; add one of them", s.name)
		default:
			r.note("%s: it has no BMC; a person switches it on", s.name)
		}
		if len(s.labels) > 0 {
			n.Labels = maps.Clone(s.labels)
		}
		made.Nodes = append(made.Nodes, n)
	}
	return made
}

// sharedLogin is the user and password of all BMCs, nil if they have several or none.
func (r *reader) sharedLogin() *server {
	var first *server
	for _, name := range r.order {
		s := r.servers[name]
		if s.bmc == "" {
			continue
		}
		if s.username == "" || s.password == "" {
			return nil
		}
		if first == nil {
			first = s
		}
		if s.username != first.username || s.password != first.password {
			return nil
		}
	}
	return first
}
