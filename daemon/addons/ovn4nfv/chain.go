package ovn4nfv

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Chain is a NetworkChaining, as it is understood: functions are pods, and traffic between left and right goes through all
// of them.
type Chain struct {
	Namespace   string
	Functions   []labels.Selector
	Between     []string // networks, one fewer than functions
	Left, Right []end
}

// end is a network outside of the chain.
type end struct {
	Subnet  netip.Prefix
	Gateway netip.Addr
}

// PodRoute is one that a pod gets.
type PodRoute struct {
	To      netip.Prefix `json:"to"`
	Gateway netip.Addr   `json:"gateway"`
}

// everywhereElse is what a default route is for, in halves: the pod's own default route stays, for when the chain goes.
func everywhereElse(gateway netip.Addr) []PodRoute {
	return []PodRoute{
		{netip.MustParsePrefix("0.0.0.0/1"), gateway},
		{netip.MustParsePrefix("128.0.0.0/1"), gateway},
	}
}

// ReadChain understands what a NetworkChaining says.
func ReadChain(spec ChainSpec) (c Chain, err error) {
	if !strings.EqualFold(spec.Type, "Routing") {
		return c, fmt.Errorf("spec.chainType %q is not Routing", spec.Type)
	}
	if c.Namespace = spec.Routing.Namespace; c.Namespace == "" {
		return c, errors.New("spec.routingSpec.namespace is empty; write that of the pods")
	}
	if err := c.readParts(spec.Routing.Chain); err != nil {
		return c, fmt.Errorf("spec.routingSpec.networkChain: %w", err)
	}
	if c.Left, err = readEnds(spec.Routing.Left); err != nil {
		return c, fmt.Errorf("spec.routingSpec.left: %w", err)
	}
	if c.Right, err = readEnds(spec.Routing.Right); err != nil {
		return c, fmt.Errorf("spec.routingSpec.right: %w", err)
	}
	return c, nil
}

// readParts reads pods and networks, which take turns. Networks at the ends say nothing that left and right do not.
func (c *Chain) readParts(text string) error {
	wasFunction := false
	for i, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		key, value, isPair := strings.Cut(part, "=")
		isNetwork := key == "net" || !isPair
		if isNetwork == wasFunction || i == 0 {
			wasFunction = !isNetwork
		} else {
			return fmt.Errorf("%q follows one of its kind; write labels of pods with a network between each two, such as "+
				"app=a,net=middle,app=b", part)
		}
		if !isNetwork {
			selector, err := labels.Parse(part)
			if err != nil {
				return fmt.Errorf("%q is no label: %w", part, err)
			}
			c.Functions = append(c.Functions, selector)
			continue
		}
		if !isPair {
			value = part
		}
		if value == "" {
			return errors.New("a network has no name")
		}
		if len(c.Functions) > 0 {
			c.Between = append(c.Between, value)
		}
	}
	if len(c.Functions) == 0 {
		return errors.New("it names no pods")
	}
	c.Between = c.Between[:len(c.Functions)-1]
	return nil
}

func readEnds(all []ChainEnd) (ends []end, err error) {
	if len(all) == 0 {
		return nil, errors.New("it is empty")
	}
	for i, e := range all {
		if len(e.PodSelector) > 0 {
			return nil, fmt.Errorf("[%d].podSelector is not there; give the pods a gwipaddress by their own annotation", i)
		}
		var one end
		if one.Subnet, err = netip.ParsePrefix(e.Subnet); err != nil || !one.Subnet.Addr().Is4() {
			return nil, fmt.Errorf("[%d].subnet %q is no network; write 172.30.10.0/24", i, e.Subnet)
		}
		one.Subnet = one.Subnet.Masked()
		if one.Gateway, err = netip.ParseAddr(e.Gateway); err != nil || !one.Gateway.Is4() {
			return nil, fmt.Errorf("[%d].gatewayIp %q is no IPv4 address", i, e.Gateway)
		}
		ends = append(ends, one)
	}
	return ends, nil
}

// function is the pod of one function of a chain, and what it has.
type function struct {
	uid        types.UID
	name       string
	interfaces []Interface
}

// address returns what a function has on a network.
func (f function) address(namespace, network string) (netip.Addr, bool) {
	for _, in := range []string{namespace, sharedNamespace} {
		for _, i := range f.interfaces {
			if prefix, err := i.prefix(); err == nil && i.Network == in+"/"+network {
				return prefix.Addr(), true
			}
		}
	}
	return netip.Addr{}, false
}

// reaches reports whether a gateway is on one of a function's networks.
func (f function) reaches(gateway netip.Addr) bool {
	return slices.ContainsFunc(f.interfaces, func(i Interface) bool {
		prefix, err := i.prefix()
		return err == nil && prefix.Masked().Contains(gateway)
	})
}

func (f function) explainUnreached(gateway netip.Addr) error {
	return fmt.Errorf("pod %s is on no network of the gatewayIp %s; give it an interface there", f.name, gateway)
}

// isOn reports whether a function is on a network itself.
func (f function) isOn(subnet netip.Prefix) bool {
	return slices.ContainsFunc(f.interfaces, func(i Interface) bool {
		prefix, err := i.prefix()
		return err == nil && prefix.Masked() == subnet
	})
}

// planRoutes returns the routes of a chain's functions: to the left by the one before, everywhere else by the one after.
func (c Chain) planRoutes(functions []function) (map[types.UID][]PodRoute, error) {
	routes := map[types.UID][]PodRoute{}
	for i, f := range functions {
		for _, left := range c.Left {
			if i == 0 {
				if !f.reaches(left.Gateway) {
					return nil, f.explainUnreached(left.Gateway)
				}
				if !f.isOn(left.Subnet) {
					routes[f.uid] = append(routes[f.uid], PodRoute{left.Subnet, left.Gateway})
				}
				continue
			}
			before, ok := functions[i-1].address(c.Namespace, c.Between[i-1])
			if !ok {
				return nil, fmt.Errorf("pod %s has no interface on network %s", functions[i-1].name, c.Between[i-1])
			}
			routes[f.uid] = append(routes[f.uid], PodRoute{left.Subnet, before})
		}

		if i == len(functions)-1 {
			if !f.reaches(c.Right[0].Gateway) {
				return nil, f.explainUnreached(c.Right[0].Gateway)
			}
			routes[f.uid] = append(routes[f.uid], everywhereElse(c.Right[0].Gateway)...)
			continue
		}
		after, ok := functions[i+1].address(c.Namespace, c.Between[i])
		if !ok {
			return nil, fmt.Errorf("pod %s has no interface on network %s", functions[i+1].name, c.Between[i])
		}
		routes[f.uid] = append(routes[f.uid], everywhereElse(after)...)
	}
	return routes, nil
}

// findFunctions returns the oldest running pod for each function.
func (c Chain) findFunctions(pods []*corev1.Pod, interfaces map[types.UID][]Interface) ([]function, error) {
	var all []function
	for _, selector := range c.Functions {
		var found *corev1.Pod
		for _, pod := range pods {
			if pod.Namespace != c.Namespace || !selector.Matches(labels.Set(pod.Labels)) || len(interfaces[pod.UID]) == 0 {
				continue
			}
			if found == nil || pod.CreationTimestamp.Before(&found.CreationTimestamp) ||
				pod.CreationTimestamp.Equal(&found.CreationTimestamp) && pod.Name < found.Name {
				found = pod
			}
		}
		if found == nil {
			return nil, fmt.Errorf("no pod of namespace %s has the label %s and interfaces of OVN", c.Namespace, selector)
		}
		all = append(all, function{found.UID, found.Name, interfaces[found.UID]})
	}
	return all, nil
}
