package multus

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/utils"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Selection is one network that a pod asks for (De-facto Standard v1.3, 4.1).
type Selection struct {
	Name         string         `json:"name"`
	Namespace    string         `json:"namespace"` // of the definition; the pod's if the annotation has none
	Interface    string         `json:"interface"` // in the pod; set by ParseNetworks if the annotation has none
	IPs          []string       `json:"ips"`       // addresses, with or without a prefix length
	MAC          string         `json:"mac"`
	GUID         string         `json:"infiniband-guid"`
	PortMappings []PortMapping  `json:"portMappings"`
	Bandwidth    *Bandwidth     `json:"bandwidth"`
	DefaultRoute []string       `json:"default-route"` // gateways of the pod, by this network
	CNIArgs      map[string]any `json:"cni-args"`
	DeviceID     string         `json:"deviceID"`
}

// PortMapping is a port of the node that leads to the pod.
type PortMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol,omitempty"` // tcp, udp or sctp
	HostIP        string `json:"hostIP,omitempty"`
}

// Bandwidth has rates in bits per second and bursts in bits.
type Bandwidth struct {
	IngressRate  int64 `json:"ingressRate,omitempty"`
	IngressBurst int64 `json:"ingressBurst,omitempty"`
	EgressRate   int64 `json:"egressRate,omitempty"`
	EgressBurst  int64 `json:"egressBurst,omitempty"`
}

// String is the definition, as NAMESPACE/NAME.
func (s Selection) String() string { return s.Namespace + "/" + s.Name }

// ParseNetworks reads the annotation NetworksKey of a pod of a namespace, whose first interface has a name. It is
// either a list in JSON or names with commas between, [NAMESPACE/]NAME[@INTERFACE]. Interfaces without a name get
// net1, net2 and so on, by their place in the list, as upstream's.
func ParseNetworks(text, namespace, first string) ([]Selection, error) {
	all, err := parseAnnotation(NetworksKey, text, namespace)
	if err != nil {
		return nil, err
	}

	taken := map[string]bool{first: true, "lo": true}
	for i := range all {
		s := &all[i]
		if s.Interface == "" {
			s.Interface = fmt.Sprintf("net%d", i+1)
		}
		if taken[s.Interface] {
			return nil, fmt.Errorf("annotation %s: network %s: interface %s is in use; give it another name",
				NetworksKey, s, s.Interface)
		}
		taken[s.Interface] = true
	}
	return all, nil
}

// ParseDefaultNetwork reads the annotation DefaultNetworkKey: one network in place of the cluster's default one.
func ParseDefaultNetwork(text string) (Selection, error) {
	all, err := parseAnnotation(DefaultNetworkKey, text, systemNamespace)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("annotation %s: it has %d networks; a pod has one default network", DefaultNetworkKey, len(all))
	}
	if err != nil {
		return Selection{}, err
	}
	return all[0], nil
}

func parseAnnotation(key, text, namespace string) ([]Selection, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}

	var all []Selection
	if strings.HasPrefix(text, "[") {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return nil, fmt.Errorf("annotation %s: read the list: %w", key, err)
		}
	} else {
		for name := range strings.SplitSeq(text, ",") {
			all = append(all, splitName(strings.TrimSpace(name)))
		}
	}

	for i := range all {
		if all[i].Namespace == "" {
			all[i].Namespace = namespace
		}
		if err := all[i].check(); err != nil {
			return nil, fmt.Errorf("annotation %s: network %d: %w", key, i+1, err)
		}
	}
	return all, nil
}

// splitName reads [NAMESPACE/]NAME[@INTERFACE]. What it makes of anything else, check refuses.
func splitName(text string) Selection {
	var s Selection
	if namespace, name, ok := strings.Cut(text, "/"); ok {
		s.Namespace, text = namespace, name
		if namespace == "" {
			s.Namespace = "/"
		}
	}
	name, device, ok := strings.Cut(text, "@")
	s.Name, s.Interface = name, device
	if ok && device == "" {
		s.Interface = "@"
	}
	return s
}

func (s Selection) check() error {
	switch {
	case s.Name == "":
		return fmt.Errorf("it has no name")
	case len(validation.IsDNS1123Subdomain(s.Name)) > 0:
		return fmt.Errorf("name %q is no object's; write [NAMESPACE/]NAME[@INTERFACE]", s.Name)
	case len(validation.IsDNS1123Label(s.Namespace)) > 0:
		return fmt.Errorf("namespace %q cannot be; write [NAMESPACE/]NAME[@INTERFACE]", s.Namespace)
	case s.Interface != "" && (utils.ValidateInterfaceName(s.Interface) != nil || strings.ContainsAny(s.Interface, "@ ")):
		return fmt.Errorf("interface %q cannot be; a name has up to 15 characters without blanks, '/' and ':'", s.Interface)
	}

	for _, ip := range s.IPs {
		_, err := netip.ParsePrefix(ip)
		if _, bare := netip.ParseAddr(ip); err != nil && bare != nil {
			return fmt.Errorf("ips: %q is no address; write 192.0.2.7/24", ip)
		}
	}
	for _, ip := range s.DefaultRoute {
		if _, err := netip.ParseAddr(ip); err != nil {
			return fmt.Errorf("default-route: %q is no address of a gateway", ip)
		}
	}
	if s.MAC != "" {
		if _, err := net.ParseMAC(s.MAC); err != nil {
			return fmt.Errorf("mac: %q is no MAC; write 02:00:00:00:00:07", s.MAC)
		}
	}

	for _, p := range s.PortMappings {
		if err := p.check(); err != nil {
			return err
		}
	}
	if b := s.Bandwidth; b != nil && min(b.IngressRate, b.IngressBurst, b.EgressRate, b.EgressBurst) < 0 {
		return fmt.Errorf("bandwidth: a rate or burst is negative")
	}
	return nil
}

func (p PortMapping) check() error {
	const last = 65535
	if p.HostPort < 1 || p.HostPort > last || p.ContainerPort < 1 || p.ContainerPort > last {
		return fmt.Errorf("portMappings: %d to %d: ports are from 1 to %d", p.HostPort, p.ContainerPort, last)
	}
	switch strings.ToLower(p.Protocol) {
	case "", "tcp", "udp", "sctp":
	default:
		return fmt.Errorf("portMappings: protocol %q is none of tcp, udp and sctp", p.Protocol)
	}
	if _, err := netip.ParseAddr(p.HostIP); p.HostIP != "" && err != nil {
		return fmt.Errorf("portMappings: hostIP %q is no address", p.HostIP)
	}
	return nil
}

// capabilities are what of a selection goes to plugins as runtimeConfig, by the names of CNI's conventions.
func (s Selection) capabilities() map[string]any {
	all := map[string]any{}
	if len(s.IPs) > 0 {
		all["ips"] = s.IPs
	}
	if s.MAC != "" {
		all["mac"] = s.MAC
	}
	if s.GUID != "" {
		all["infinibandGUID"] = s.GUID
	}
	if len(s.PortMappings) > 0 {
		ports := make([]PortMapping, len(s.PortMappings))
		for i, p := range s.PortMappings {
			p.Protocol = strings.ToLower(p.Protocol)
			if p.Protocol == "" {
				p.Protocol = "tcp"
			}
			ports[i] = p
		}
		all["portMappings"] = ports
	}
	if s.Bandwidth != nil {
		all["bandwidth"] = *s.Bandwidth
	}
	if s.DeviceID != "" {
		all["deviceID"] = s.DeviceID
	}
	return all
}
