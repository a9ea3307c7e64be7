// Package render makes metadata and network data of a Metal3DataTemplate for one machine. It is pure: objects and
// addresses in, YAML out.
package render

import (
	"fmt"
	"strconv"
	"strings"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1beta2"
)

// Pool is a pool of addresses by its reference, with the defaults filled in.
type Pool struct{ APIGroup, Kind, Name string }

// Defaults of a reference to a pool.
const (
	PoolGroup = "ipam.metal3.io"
	PoolKind  = "IPPool"
)

// NewPool is a reference with the defaults filled in.
func NewPool(group, kind, name string) Pool {
	if group == "" {
		group = PoolGroup
	}
	if kind == "" {
		kind = PoolKind
	}
	return Pool{APIGroup: group, Kind: kind, Name: name}
}

// Address is what a machine has from a pool.
type Address struct {
	Address    string
	Prefix     int32
	Gateway    string // "": none
	DNSServers []string
}

// Input is all that data is made of.
type Input struct {
	Namespace  string
	Index      int32
	Machine    metav1.Object
	Metal3     metav1.Object
	Host       *metal3api.BareMetalHost
	ProviderID string // without its scheme
	Addresses  map[Pool]Address
}

// object is one of the three objects by its name in a template, in any case.
func (in Input) object(name string) (metav1.Object, error) {
	switch strings.ToLower(name) {
	case "machine":
		return in.Machine, nil
	case "metal3machine":
		return in.Metal3, nil
	case "baremetalhost":
		return in.Host, nil
	}
	return nil, fmt.Errorf("object %q is unknown; use machine, metal3machine or baremetalhost", name)
}

func (in Input) address(p Pool) (Address, error) {
	a, ok := in.Addresses[p]
	if !ok {
		return Address{}, fmt.Errorf("there is no address of %s %s yet", p.Kind, p.Name)
	}
	return a, nil
}

// interfaceMAC is the MAC address of an interface that inspection found.
func (in Input) interfaceMAC(name string) (string, error) {
	if d := in.Host.Status.HardwareDetails; d != nil {
		for _, n := range d.NIC {
			if n.Name == name {
				return n.MAC, nil
			}
		}
	}
	return "", fmt.Errorf("host %s has no interface %q", in.Host.Name, name)
}

// MetaData renders the metadata. Of two with one key the later list wins.
func MetaData(t *v1beta2.MetaData, in Input) ([]byte, error) {
	out := map[string]string{}
	for _, add := range []func(*v1beta2.MetaData, Input, map[string]string) error{
		addInterfaces, addPools, addNames, addKeys,
	} {
		if err := add(t, in, out); err != nil {
			return nil, fmt.Errorf("metaData: %w", err)
		}
	}
	for _, s := range t.Strings {
		out[s.Key] = s.Value
	}
	out["providerid"] = in.ProviderID

	text, err := yaml.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode metaData: %w", err)
	}
	return text, nil
}

func addInterfaces(t *v1beta2.MetaData, in Input, out map[string]string) error {
	for _, f := range t.FromHostInterfaces {
		mac := in.Host.Spec.BootMACAddress
		if !f.FromBootMAC {
			var err error
			if mac, err = in.interfaceMAC(f.Interface); err != nil {
				return fmt.Errorf("%s: %w", f.Key, err)
			}
		}
		if mac == "" {
			return fmt.Errorf("%s: host %s has no bootMACAddress", f.Key, in.Host.Name)
		}
		out[f.Key] = mac
	}
	return nil
}

func addPools(t *v1beta2.MetaData, in Input, out map[string]string) error {
	for _, list := range []struct {
		of    []v1beta2.FromPool
		value func(Address) string
	}{
		{t.IPAddressesFromPool, func(a Address) string { return a.Address }},
		{t.PrefixesFromPool, func(a Address) string { return strconv.Itoa(int(a.Prefix)) }},
		{t.GatewaysFromPool, func(a Address) string { return a.Gateway }},
		{t.DNSServersFromPool, func(a Address) string { return strings.Join(a.DNSServers, ",") }},
	} {
		for _, f := range list.of {
			a, err := in.address(NewPool(f.APIGroup, f.Kind, f.Name))
			if err != nil {
				return fmt.Errorf("%s: %w", f.Key, err)
			}
			out[f.Key] = list.value(a)
		}
	}
	return nil
}

func addNames(t *v1beta2.MetaData, in Input, out map[string]string) error {
	for _, i := range t.Indexes {
		step := i.Step
		if step == 0 {
			step = 1
		}
		out[i.Key] = i.Prefix + strconv.FormatInt(int64(i.Offset)+int64(in.Index)*int64(step), 10) + i.Suffix
	}
	for _, n := range t.Namespaces {
		out[n.Key] = in.Namespace
	}
	for _, n := range t.ObjectNames {
		o, err := in.object(n.Object)
		if err != nil {
			return fmt.Errorf("%s: %w", n.Key, err)
		}
		out[n.Key] = o.GetName()
	}
	return nil
}

func addKeys(t *v1beta2.MetaData, in Input, out map[string]string) error {
	for _, l := range t.FromLabels {
		o, err := in.object(l.Object)
		if err != nil {
			return fmt.Errorf("%s: %w", l.Key, err)
		}
		out[l.Key] = o.GetLabels()[l.Label]
	}
	for _, a := range t.FromAnnotations {
		o, err := in.object(a.Object)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Key, err)
		}
		out[a.Key] = o.GetAnnotations()[a.Annotation]
	}
	return nil
}
