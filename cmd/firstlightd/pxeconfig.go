package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/yamldoc"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/server"
)

// pxeFile is the configuration of `firstlightd pxe` as written.
type pxeFile struct {
	Interface string     `yaml:"interface"`
	Address   pxeAddr    `yaml:"address"`
	HTTPPort  int        `yaml:"httpPort" min:"0" max:"65535"`
	TFTPPort  int        `yaml:"tftpPort" min:"0" max:"65535"`
	Admin     string     `yaml:"admin"` // address:port of metrics and records
	Captures  string     `yaml:"captures"`
	Boot      []string   `yaml:"boot"`
	Mounts    []pxeMount `yaml:"mounts"`
	DHCP      *pxeDHCP   `yaml:"dhcp"`

	Machines map[pxeMAC]pxeMachine `yaml:"machines"`
	Default  pxeMachine            `yaml:"default"`
}

type pxeMount struct {
	Path string `yaml:"path"`
	Dir  string `yaml:"dir"`
}

type pxeDHCP struct {
	Proxy   bool        `yaml:"proxy"`   // boot files only, beside another server
	Foreign string      `yaml:"foreign"` // silent, proxy or ignore-unknown, while another server answers
	Leases  string      `yaml:"leases"`
	ISC     string      `yaml:"isc"`
	Subnets []pxeSubnet `yaml:"subnets"`
}

type pxeSubnet struct {
	Prefix pxePrefix   `yaml:"prefix"`
	Pool   pxeRange    `yaml:"pool"`
	Known  pxeRange    `yaml:"known"`
	Lease  pxeDuration `yaml:"lease"`
	Router pxeAddr     `yaml:"router"`
	DNS    []pxeAddr   `yaml:"dns"`
	NTP    []pxeAddr   `yaml:"ntp"`
	Domain string      `yaml:"domain"`
	MTU    int         `yaml:"mtu" min:"0" max:"65535"`
}

// pxeMachine is what one machine, or every other one, boots.
type pxeMachine struct {
	Action   pxeAction `yaml:"action"`
	Reason   string    `yaml:"reason"`
	Script   string    `yaml:"script"`
	Kernel   string    `yaml:"kernel"`
	Initrd   []string  `yaml:"initrd"`
	Args     []string  `yaml:"args"`
	Token    string    `yaml:"tokenFile"` // the token itself is not for a configuration file
	Address  pxeAddr   `yaml:"address"`
	Hostname string    `yaml:"hostname"`

	SecureBoot bool `yaml:"secureBoot"` // it loads signed boot programs
}

// Values that are written as one word (yamldoc.Text).
type (
	pxeAddr     struct{ netip.Addr }
	pxePrefix   struct{ netip.Prefix }
	pxeRange    struct{ dhcp.Range }
	pxeMAC      [6]byte
	pxeAction   struct{ pxe.Action }
	pxeDuration time.Duration
)

func (d *pxeDuration) ParseText(s string) error {
	length, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a length of time; write it like 1h", s)
	}

	*d = pxeDuration(length)
	return nil
}

func (a *pxeAddr) ParseText(s string) (err error) {
	if a.Addr, err = netip.ParseAddr(s); err != nil || a.Zone() != "" {
		return fmt.Errorf("%q is not an address; write it like 172.22.0.1 or fd00:1::1", s)
	}
	return nil
}

func (p *pxePrefix) ParseText(s string) (err error) {
	if p.Prefix, err = netip.ParsePrefix(s); err != nil {
		return fmt.Errorf("%q is not a network; write it like 172.22.0.0/24", s)
	}
	return nil
}

func (r *pxeRange) ParseText(s string) (err error) {
	first, last, ok := strings.Cut(s, "-")
	if ok {
		if r.First, err = netip.ParseAddr(strings.TrimSpace(first)); err == nil {
			r.Last, err = netip.ParseAddr(strings.TrimSpace(last))
		}
	}

	if !ok || err != nil {
		return fmt.Errorf("%q is not a range; write it like 172.22.0.100-172.22.0.199", s)
	}

	return nil
}

func (m *pxeMAC) ParseText(s string) error {
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 {
		return fmt.Errorf("%q is not a MAC address; write it like \"52:54:00:12:34:56\"", s)
	}

	copy(m[:], mac)
	return nil
}

func (a *pxeAction) ParseText(s string) error {
	for _, action := range []pxe.Action{pxe.ActionRefuse, pxe.ActionDisk, pxe.ActionInspect, pxe.ActionRamdisk, pxe.ActionWait} {
		if s == action.String() {
			a.Action = action
			return nil
		}
	}
	return fmt.Errorf("action %q is unknown; use refuse, disk, inspect, ramdisk or wait", s)
}

// pxeParsed is the configuration as resolved; Log and Registry are still to be set.
type pxeParsed struct {
	conf  server.Config
	admin string
}

// parsePXE reads the configuration. Every problem is one line: file:line: path: what; what to do.
func parsePXE(file string, data []byte) (pxeParsed, error) {
	var f pxeFile
	d := yamldoc.Document{File: file, Kind: "the configuration of PXE", FreeText: true}
	d.Decode(data, &f)
	if len(d.Problems()) == 0 && (f.Interface == "" || !f.Address.IsValid()) {
		d.Report(
			"", "interface and address are required; name the provisioning interface and this machine's address on it",
		)
	}

	if err := d.Problems().Err(); err != nil {
		return pxeParsed{}, err
	}

	conf := server.Config{
		Interface: f.Interface,
		Addr:      f.Address.Addr,
		HTTPPort:  uint16(f.HTTPPort),
		TFTPPort:  uint16(f.TFTPPort),
		BootDirs:  f.Boot,
		Captures:  f.Captures,
		Booter:    f.booter(&d),
	}
	for _, m := range f.Mounts {
		conf.Mounts = append(conf.Mounts, server.Mount{Path: m.Path, Dir: m.Dir})
	}

	if f.DHCP != nil {
		conf.DHCP = f.dhcpConfig(&d)
	}

	return pxeParsed{conf: conf, admin: f.Admin}, d.Problems().Err()
}

func (f *pxeFile) dhcpConfig(doc *yamldoc.Document) *dhcp.Config {
	d := &dhcp.Config{LeaseDir: f.DHCP.Leases, ISCFile: f.DHCP.ISC}
	if f.DHCP.Proxy {
		d.Mode = dhcp.ModeProxy
	}

	switch f.DHCP.Foreign {
	case "", "silent":
	case "proxy":
		d.Foreign = dhcp.ForeignProxy
	case "ignore-unknown":
		d.Foreign = dhcp.ForeignIgnoreUnknown
	default:
		doc.Report("dhcp.foreign", "%q is unknown; use silent, proxy or ignore-unknown", f.DHCP.Foreign)
	}

	plain := func(list []pxeAddr) (out []netip.Addr) {
		for _, a := range list {
			out = append(out, a.Addr)
		}
		return out
	}
	for _, s := range f.DHCP.Subnets {
		d.Subnets = append(d.Subnets, dhcp.Subnet{
			Prefix: s.Prefix.Prefix,
			Pool:   s.Pool.Range,
			Known:  s.Known.Range,
			Lease:  time.Duration(s.Lease),
			Router: s.Router.Addr,
			DNS:    plain(s.DNS),
			NTP:    plain(s.NTP),
			Domain: s.Domain,
			MTU:    uint16(s.MTU),
		})
	}

	for mac, m := range f.Machines {
		d.Reservations = append(
			d.Reservations, dhcp.Reservation{MAC: mac[:], Addr: m.Address.Addr, Hostname: m.Hostname},
		)
	}

	slices.SortFunc(d.Reservations, func(a, b dhcp.Reservation) int { return bytes.Compare(a.MAC, b.MAC) })
	return d
}

// fileBooter answers from the configuration file: policy for those who have no other.
type fileBooter struct {
	machines map[pxeMAC]pxe.Boot
	other    pxe.Boot
}

// Boot implements pxe.Booter.
func (b *fileBooter) Boot(_ context.Context, m pxe.Machine) pxe.Boot {
	if len(m.MAC) == 6 {
		if boot, ok := b.machines[pxeMAC(m.MAC)]; ok {
			return boot
		}
	}
	return b.other
}

func (f *pxeFile) booter(doc *yamldoc.Document) *fileBooter {
	b := &fileBooter{machines: map[pxeMAC]pxe.Boot{}, other: f.Default.bootConfig(doc, "default")}
	for mac, m := range f.Machines {
		b.machines[mac] = m.bootConfig(doc, yamldoc.Join("machines", net.HardwareAddr(mac[:]).String()))
	}
	return b
}

func (m pxeMachine) bootConfig(doc *yamldoc.Document, path string) pxe.Boot {
	boot := pxe.Boot{
		Action: m.Action.Action,
		Reason: m.Reason,
		Script: m.Script,
		Kernel: m.Kernel,
		Initrd: m.Initrd,
		Args:   m.Args,

		SecureBoot: m.SecureBoot,
	}
	if boot.Action == pxe.ActionRefuse && boot.Reason == "" {
		boot.Reason = "this network does not know it"
	}

	if boot.Action == pxe.ActionWait && boot.Reason == "" {
		boot.Reason = "what it shall boot is not decided yet"
	}

	ramdisk := boot.Action == pxe.ActionInspect || boot.Action == pxe.ActionRamdisk
	if ramdisk && boot.Kernel == "" && boot.Script == "" {
		doc.Report(path, "action %s boots nothing; give kernel and initrd, or script", boot.Action)
	}

	if m.Token != "" {
		token, err := os.ReadFile(m.Token)
		if err != nil {
			doc.Report(path, "read tokenFile: %v", err)
		}
		boot.Token = pxe.Secret(strings.TrimSpace(string(token)))
	}

	return boot
}
