package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/dhcp"
	"firstlight.dev/firstlight/pxe/server"
)

// pxeFile is the configuration of `firstlightd pxe` as written.
type pxeFile struct {
	Interface string     `yaml:"interface"`
	Address   pxeAddr    `yaml:"address"`
	HTTPPort  uint16     `yaml:"httpPort"`
	TFTPPort  uint16     `yaml:"tftpPort"`
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
	Foreign string      `yaml:"foreign"` // silent or proxy, while another server answers
	Leases  string      `yaml:"leases"`
	ISC     string      `yaml:"isc"`
	Subnets []pxeSubnet `yaml:"subnets"`
}

type pxeSubnet struct {
	Prefix pxePrefix     `yaml:"prefix"`
	Pool   pxeRange      `yaml:"pool"`
	Known  pxeRange      `yaml:"known"`
	Lease  time.Duration `yaml:"lease"`
	Router pxeAddr       `yaml:"router"`
	DNS    []pxeAddr     `yaml:"dns"`
	NTP    []pxeAddr     `yaml:"ntp"`
	Domain string        `yaml:"domain"`
	MTU    uint16        `yaml:"mtu"`
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
}

// Scalars that know how to be read, so that an error has its line.
type (
	pxeAddr   struct{ netip.Addr }
	pxePrefix struct{ netip.Prefix }
	pxeRange  struct{ dhcp.Range }
	pxeMAC    [6]byte
	pxeAction struct{ pxe.Action }
)

func lineError(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{n.Line}, args...)...)
}

func (a *pxeAddr) UnmarshalYAML(n *yaml.Node) (err error) {
	if a.Addr, err = netip.ParseAddr(n.Value); err != nil || !a.Is4() {
		return lineError(n, "%q is not an IPv4 address; write it like 172.22.0.1", n.Value)
	}
	return nil
}

func (p *pxePrefix) UnmarshalYAML(n *yaml.Node) (err error) {
	if p.Prefix, err = netip.ParsePrefix(n.Value); err != nil {
		return lineError(n, "%q is not a network; write it like 172.22.0.0/24", n.Value)
	}
	return nil
}

func (r *pxeRange) UnmarshalYAML(n *yaml.Node) (err error) {
	first, last, ok := strings.Cut(n.Value, "-")
	if ok {
		if r.First, err = netip.ParseAddr(strings.TrimSpace(first)); err == nil {
			r.Last, err = netip.ParseAddr(strings.TrimSpace(last))
		}
	}
	if !ok || err != nil {
		return lineError(n, "%q is not a range; write it like 172.22.0.100-172.22.0.199", n.Value)
	}
	return nil
}

func (m *pxeMAC) UnmarshalYAML(n *yaml.Node) error {
	mac, err := net.ParseMAC(n.Value)
	if err != nil || len(mac) != 6 {
		return lineError(n, "%q is not a MAC address; write it like \"52:54:00:12:34:56\"", n.Value)
	}
	copy(m[:], mac)
	return nil
}

func (a *pxeAction) UnmarshalYAML(n *yaml.Node) error {
	for _, action := range []pxe.Action{pxe.ActionRefuse, pxe.ActionDisk, pxe.ActionInspect, pxe.ActionRamdisk, pxe.ActionWait} {
		if n.Value == action.String() {
			a.Action = action
			return nil
		}
	}
	return lineError(n, "action %q is unknown; use refuse, disk, inspect, ramdisk or wait", n.Value)
}

// pxeParsed is the configuration as resolved; Log and Registry are still to be set.
type pxeParsed struct {
	conf  server.Config
	admin string
}

// parsePXE reads the configuration. Errors are one line each: file:line: what, what to do.
func parsePXE(file string, data []byte) (pxeParsed, error) {
	var f pxeFile
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return pxeParsed{}, locateErrors(file, err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return pxeParsed{}, fmt.Errorf("%s: holds a second document; keep one", file)
	}
	if f.Interface == "" || !f.Address.IsValid() {
		return pxeParsed{}, fmt.Errorf("%s: interface and address are required; name the provisioning interface and this machine's address on it", file)
	}
	booter, err := f.booter(file)
	if err != nil {
		return pxeParsed{}, err
	}
	conf := server.Config{Interface: f.Interface, Addr: f.Address.Addr, HTTPPort: f.HTTPPort, TFTPPort: f.TFTPPort, BootDirs: f.Boot, Captures: f.Captures, Booter: booter}
	for _, m := range f.Mounts {
		conf.Mounts = append(conf.Mounts, server.Mount{Path: m.Path, Dir: m.Dir})
	}
	if f.DHCP != nil {
		if conf.DHCP, err = f.dhcpConfig(file); err != nil {
			return pxeParsed{}, err
		}
	}
	return pxeParsed{conf: conf, admin: f.Admin}, nil
}

// locateErrors turns the decoder's "line N: ..." into file:N: ..., one line per fault.
func locateErrors(file string, err error) error {
	at := regexp.MustCompile(`line (\d+): `)
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "yaml: "))
		if line == "" || line == "unmarshal errors:" {
			continue
		}
		if m := at.FindStringSubmatchIndex(line); m != nil {
			line = file + ":" + line[m[2]:m[3]] + ": " + line[m[1]:]
		} else {
			line = file + ": " + line
		}
		lines = append(lines, regexp.MustCompile(` in type \S+$`).ReplaceAllString(line, "; docs/pxe.md lists the fields"))
	}
	return errors.New(strings.Join(lines, "\n"))
}

func (f *pxeFile) dhcpConfig(file string) (*dhcp.Config, error) {
	d := &dhcp.Config{LeaseDir: f.DHCP.Leases, ISCFile: f.DHCP.ISC}
	if f.DHCP.Proxy {
		d.Mode = dhcp.ModeProxy
	}
	switch f.DHCP.Foreign {
	case "", "silent":
	case "proxy":
		d.Foreign = dhcp.ForeignProxy
	default:
		return nil, fmt.Errorf("%s: dhcp.foreign: %q is unknown; use silent or proxy", file, f.DHCP.Foreign)
	}
	plain := func(list []pxeAddr) (out []netip.Addr) {
		for _, a := range list {
			out = append(out, a.Addr)
		}
		return out
	}
	for _, s := range f.DHCP.Subnets {
		d.Subnets = append(d.Subnets, dhcp.Subnet{
			Prefix: s.Prefix.Prefix, Pool: s.Pool.Range, Known: s.Known.Range, Lease: s.Lease, Router: s.Router.Addr,
			DNS: plain(s.DNS), NTP: plain(s.NTP), Domain: s.Domain, MTU: s.MTU,
		})
	}
	for mac, m := range f.Machines {
		d.Reservations = append(d.Reservations, dhcp.Reservation{MAC: mac[:], Addr: m.Address.Addr, Hostname: m.Hostname})
	}
	slices.SortFunc(d.Reservations, func(a, b dhcp.Reservation) int { return bytes.Compare(a.MAC, b.MAC) })
	return d, nil
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

func (f *pxeFile) booter(file string) (*fileBooter, error) {
	b := &fileBooter{machines: map[pxeMAC]pxe.Boot{}}
	var err error
	if b.other, err = f.Default.bootConfig(file, "default"); err != nil {
		return nil, err
	}
	for mac, m := range f.Machines {
		if b.machines[mac], err = m.bootConfig(file, "machines."+net.HardwareAddr(mac[:]).String()); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (m pxeMachine) bootConfig(file, where string) (pxe.Boot, error) {
	boot := pxe.Boot{Action: m.Action.Action, Reason: m.Reason, Script: m.Script, Kernel: m.Kernel, Initrd: m.Initrd, Args: m.Args}
	if boot.Action == pxe.ActionRefuse && boot.Reason == "" {
		boot.Reason = "this network does not know it"
	}
	if boot.Action == pxe.ActionWait && boot.Reason == "" {
		boot.Reason = "what it shall boot is not decided yet"
	}
	ramdisk := boot.Action == pxe.ActionInspect || boot.Action == pxe.ActionRamdisk
	if ramdisk && boot.Kernel == "" && boot.Script == "" {
		return boot, fmt.Errorf("%s: %s: action %s boots nothing; give kernel and initrd, or script", file, where, boot.Action)
	}
	if m.Token != "" {
		token, err := os.ReadFile(m.Token)
		if err != nil {
			return boot, fmt.Errorf("%s: %s: read tokenFile: %w", file, where, err)
		}
		boot.Token = pxe.Secret(strings.TrimSpace(string(token)))
	}
	return boot, nil
}
