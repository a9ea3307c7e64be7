// Package sriov gives pods virtual functions of network devices as interfaces. Its CNI plugin is compatible with
// upstream's SR-IOV CNI, by the fields of the configuration (k8snetworkplumbingwg/sriov-cni, docs/configuration-reference).
//
// Which virtual function a pod has is the kubelet's decision (package devices), and comes as the configuration's deviceID
// by way of a meta-plugin (package multus).
package sriov

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"

	"firstlight.dev/firstlight/daemon/addons/devices"
)

// Name is that of the plugin: its program in /opt/cni/bin, and its type in configurations.
const Name = "sriov"

// Conf is the plugin's configuration.
type Conf struct {
	types.NetConf
	DeviceID  string `json:"deviceID"` // the virtual function's address on the PCI bus
	VLAN      *int   `json:"vlan"`     // 0 is none
	VLANQoS   *int   `json:"vlanQoS"`
	VLANProto string `json:"vlanProto"` // 802.1q or 802.1ad
	SpoofChk  string `json:"spoofchk"`  // on or off
	Trust     string `json:"trust"`     // on or off
	LinkState string `json:"link_state"`
	MinRate   *int   `json:"min_tx_rate"` // Mbit/s
	MaxRate   *int   `json:"max_tx_rate"` // Mbit/s
	MTU       *int   `json:"mtu"`
	MAC       string `json:"mac"`

	RuntimeConfig struct {
		MAC      string `json:"mac"`
		DeviceID string `json:"deviceID"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			MAC string `json:"mac"`
		} `json:"cni"`
	} `json:"args"`
}

// ParseConf reads what the runtime hands to the plugin. A MAC of CNI_ARGS, or of the pod's annotation, takes the place of
// the configuration's.
func ParseConf(text []byte, args string) (Conf, error) {
	var c Conf
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("read the configuration of plugin %s: %w", Name, err)
	}

	var named struct {
		types.CommonArgs
		MAC types.UnmarshallableString
	}
	if err := types.LoadArgs(args, &named); err == nil && named.MAC != "" {
		c.MAC = string(named.MAC)
	}
	for _, mac := range []string{c.Args.CNI.MAC, c.RuntimeConfig.MAC} {
		if mac != "" {
			c.MAC = mac
		}
	}
	if c.DeviceID == "" {
		c.DeviceID = c.RuntimeConfig.DeviceID
	}
	return c, nil
}

// linkStates are the kernel's numbers (IFLA_VF_LINK_STATE of include/uapi/linux/if_link.h).
var linkStates = map[string]uint32{"auto": 0, "enable": 1, "disable": 2}

// vlanProtocols are EtherTypes.
var vlanProtocols = map[string]int{"802.1q": 0x8100, "802.1ad": 0x88a8}

// Settings are what a physical function can be asked to change of a virtual one. Nil is what stays.
type Settings struct {
	MAC       *string `json:"mac,omitempty"`
	VLAN      *VLAN   `json:"vlan,omitempty"`
	SpoofChk  *bool   `json:"spoofchk,omitempty"`
	Trust     *bool   `json:"trust,omitempty"`
	LinkState *uint32 `json:"linkState,omitempty"`
	Rate      *Rate   `json:"rate,omitempty"`
}

// VLAN is a tag that the device adds and removes; Protocol is an EtherType.
type VLAN struct{ ID, QoS, Protocol int }

// Rate has limits in Mbit/s; 0 is none.
type Rate struct{ Min, Max int }

// settings are what a configuration asks for.
func (c Conf) settings() (s Settings, err error) {
	const lastVLAN, lastQoS = 4094, 7
	proto, isProto := vlanProtocols[c.VLANProto]
	if c.VLANProto == "" {
		proto, isProto = vlanProtocols["802.1q"], true
	}
	switch {
	case !isProto:
		return s, fmt.Errorf("vlanProto %q is neither 802.1q nor 802.1ad", c.VLANProto)
	case c.VLAN != nil && (*c.VLAN < 0 || *c.VLAN > lastVLAN):
		return s, fmt.Errorf("vlan %d is not from 0 to %d", *c.VLAN, lastVLAN)
	case c.VLANQoS != nil && (*c.VLANQoS < 0 || *c.VLANQoS > lastQoS):
		return s, fmt.Errorf("vlanQoS %d is not from 0 to %d", *c.VLANQoS, lastQoS)
	case (c.VLAN == nil || *c.VLAN == 0) && (c.VLANProto != "" || c.VLANQoS != nil && *c.VLANQoS != 0):
		return s, errors.New("vlanQoS and vlanProto need a vlan")
	}
	if c.VLAN != nil {
		s.VLAN = &VLAN{ID: *c.VLAN, Protocol: proto}
		if c.VLANQoS != nil {
			s.VLAN.QoS = *c.VLANQoS
		}
	}

	if c.MAC != "" {
		mac, err := net.ParseMAC(c.MAC)
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
			return s, fmt.Errorf("mac %q is no MAC of an interface; write 02:00:00:00:00:07", c.MAC)
		}
		text := mac.String()
		s.MAC = &text
	}
	if s.SpoofChk, err = parseSwitch("spoofchk", c.SpoofChk); err != nil {
		return s, err
	}
	if s.Trust, err = parseSwitch("trust", c.Trust); err != nil {
		return s, err
	}
	if c.LinkState != "" {
		state, ok := linkStates[c.LinkState]
		if !ok {
			return s, fmt.Errorf("link_state %q is none of auto, enable and disable", c.LinkState)
		}
		s.LinkState = &state
	}
	if c.MinRate != nil || c.MaxRate != nil {
		s.Rate = &Rate{}
		if c.MinRate != nil {
			s.Rate.Min = *c.MinRate
		}
		if c.MaxRate != nil {
			s.Rate.Max = *c.MaxRate
		}
		if s.Rate.Min < 0 || s.Rate.Max < 0 || s.Rate.Max > 0 && s.Rate.Min > s.Rate.Max {
			return s, fmt.Errorf("min_tx_rate %d and max_tx_rate %d cannot be", s.Rate.Min, s.Rate.Max)
		}
	}
	return s, nil
}

func parseSwitch(field, text string) (*bool, error) {
	isOn := text == "on"
	switch text {
	case "":
		return nil, nil
	case "on", "off":
		return &isOn, nil
	}
	return nil, fmt.Errorf("%s %q is neither on nor off", field, text)
}

// reduce keeps of what is now what will be changed, to be restored later.
func (s Settings) reduce(changed Settings) Settings {
	if changed.MAC == nil {
		s.MAC = nil
	}
	if changed.VLAN == nil {
		s.VLAN = nil
	}
	if changed.SpoofChk == nil {
		s.SpoofChk = nil
	}
	if changed.Trust == nil {
		s.Trust = nil
	}
	if changed.LinkState == nil {
		s.LinkState = nil
	}
	if changed.Rate == nil {
		s.Rate = nil
	}
	return s
}

// Interface is a network interface as the plugin sees it.
type Interface struct {
	MAC string
	MTU int // bytes
}

// Kernel is what the plugin asks of the node. A namespace is a path; "" is the node's own.
type Kernel interface {
	// Function returns a virtual function; false if there is none at an address.
	Function(address string) (devices.VirtualFunction, bool)
	// Settings returns what a virtual function is set to, by its physical function's interface and its number.
	Settings(pf string, index int) (Settings, error)
	Set(pf string, index int, s Settings) error
	// Rebind unbinds a virtual function's driver and binds it again, and waits for its interface.
	Rebind(address string) error

	HasNamespace(path string) bool
	Interface(namespace, name string) (Interface, error)
	// SetInterface takes an interface down, and changes its MAC and MTU unless they are "" and 0.
	SetInterface(namespace, name string, to Interface) error
	// Move takes an interface down, and to another namespace with another name; it has a third one between the two.
	Move(namespace, name, toNamespace, toName, between string) error
	// Rename takes an interface of the node down, and gives it another name.
	Rename(name, to string) error
	// Configure gives an interface what a result of IPAM has for it, and takes it up.
	Configure(namespace, name string, a Addresses) error
}

// Addresses are what an interface gets of IPAM.
type Addresses struct {
	Networks []*net.IPNet
	Routes   []Route
}

// Route is one by an interface; without a gateway it is on the link.
type Route struct {
	To      *net.IPNet
	Gateway net.IP
	MTU     int
	Metric  int
}

// Dirs are folders of the node, as the process sees them.
type Dirs struct {
	State string // which virtual function is whose, and what it was before
}

// NodeDirs are the folders below root.
func NodeDirs(root string) Dirs { return Dirs{State: filepath.Join(root, "/var/lib/cni/sriov")} }

func (d Dirs) assignments() assignments { return assignments(filepath.Join(d.State, "functions")) }

// ReadContainers returns the containers that have virtual functions, by address.
func ReadContainers(d Dirs) (map[string]string, error) {
	all, err := d.assignments().All()
	containers := map[string]string{}
	for _, one := range all {
		containers[one.Address] = one.Container
	}
	return containers, err
}

// temporaryName is an interface's between two namespaces. No device of a node is called so.
func temporaryName(f devices.VirtualFunction) string {
	var sum uint32 // FNV-1a of the address: names have 15 characters
	sum = 2166136261
	for _, b := range []byte(f.Address) {
		sum = (sum ^ uint32(b)) * 16777619
	}
	return "vf" + strconv.FormatUint(uint64(sum), 36)
}
