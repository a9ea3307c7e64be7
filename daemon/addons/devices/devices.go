// Package devices offers the virtual functions and subfunctions of a node's devices to pods as resources that they
// request. It is compatible with the SR-IOV network device plugin, by that one's configuration and the variables that
// containers get, and with Intel's QAT device plugin, by its names of resources.
//
// The other side is the kubelet's device plugin API, v1beta1 (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1).
package devices

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Resource is what pods request by PREFIX/NAME, and which virtual functions it has.
type Resource struct {
	Prefix          string // as intel.com
	Name            string
	HasSubfunctions bool       // else virtual functions
	Classes         []string   // beginnings of the classes that devices may have; none: any
	Selectors       []Selector // one of them fits; none: any does
	ExcludeTopology bool       // the kubelet is not told of NUMA nodes
	Extra           Extra      // what containers are told besides
	Numbered        string     // containers get each address in a variable of this name and a number, from 0; "": not
}

// String is what pods request.
func (r Resource) String() string { return r.Prefix + "/" + r.Name }

// Extra is upstream's additionalInfo: names and values by address. Those of "*" are of all addresses that do not have the
// name themselves.
type Extra map[string]map[string]string

func (e Extra) of(address string) map[string]string {
	all := maps.Clone(e["*"])
	if all == nil {
		return e[address]
	}
	maps.Copy(all, e[address])
	return all
}

// Selector is a set of conditions, all of which hold. An empty one holds for all.
type Selector struct {
	Vendors, Devices, Drivers, Addresses, LinkTypes, ACPIIndexes, AuxTypes []string

	PFNames, RootDevices []PFSelector

	PKeys    []uint16
	IsRDMA   bool   // it has RDMA, and containers get the files of that
	VDPAType string // containers get the file of vhost; "": whether it has a vDPA device or not

	NeedsVhostNet bool // containers get /dev/vhost-net and /dev/net/tun; no condition
}

// PFSelector has a physical function, and which virtual ones of it.
type PFSelector struct {
	Name   string // of a network interface, or an address
	Ranges []Range
}

// Range is from First to Last, both included.
type Range struct{ First, Last int }

func (p PFSelector) fits(names []string, index int) bool {
	if !slices.Contains(names, p.Name) {
		return false
	}
	in := func(r Range) bool { return r.First <= index && index <= r.Last }
	return len(p.Ranges) == 0 || slices.ContainsFunc(p.Ranges, in)
}

func (s Selector) fits(f VirtualFunction) bool {
	hasOne := func(list []string, value string) bool { return len(list) == 0 || slices.Contains(list, value) }
	anyPF := func(list []PFSelector, names ...string) bool {
		fits := func(p PFSelector) bool { return p.fits(names, f.Index) }
		return len(list) == 0 || slices.ContainsFunc(list, fits)
	}
	return hasOne(s.Vendors, f.Vendor) && hasOne(s.Devices, f.Device) && hasOne(s.Drivers, f.Driver) &&
		hasOne(s.Addresses, f.Address) && hasOne(s.LinkTypes, f.LinkType) &&
		hasOne(s.ACPIIndexes, f.ACPIIndex) && hasOne(s.AuxTypes, f.AuxType) &&
		anyPF(s.PFNames, f.PFNames...) && anyPF(s.RootDevices, f.PF) &&
		s.fitsPKey(f.PKey) && (!s.IsRDMA || len(f.RDMA.Files) > 0) && (s.VDPAType == "" || s.VDPAType == f.VDPA.Type)
}

func (s Selector) fitsPKey(text string) bool {
	if len(s.PKeys) == 0 {
		return true
	}
	key, err := parsePKey(text)
	return err == nil && slices.Contains(s.PKeys, key)
}

// parsePKey reads a partition key of InfiniBand, as 0x7fff.
func parsePKey(text string) (uint16, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(text), "0x"), 16, 16)
	return uint16(n), err
}

// Fits reports whether a virtual function is one of the resource.
func (r Resource) Fits(f VirtualFunction) bool {
	hasClass := func(class string) bool { return strings.HasPrefix(f.Class, class) }
	if r.HasSubfunctions != (f.AuxType != "") || len(r.Classes) > 0 && !slices.ContainsFunc(r.Classes, hasClass) {
		return false
	}
	_, ok := r.selector(f)
	return ok
}

// selector returns the first one that fits, which says what containers get.
func (r Resource) selector(f VirtualFunction) (Selector, bool) {
	if len(r.Selectors) == 0 {
		return Selector{}, true
	}
	i := slices.IndexFunc(r.Selectors, func(s Selector) bool { return s.fits(f) })
	if i < 0 {
		return Selector{}, false
	}
	return r.Selectors[i], true
}

// keeps reports whether a virtual function that was one of the resource still is. One that changes its driver has none
// for a moment.
func (r Resource) keeps(f VirtualFunction) bool {
	if f.Driver != "" {
		return r.Fits(f)
	}
	r.Selectors = slices.Clone(r.Selectors)
	for i := range r.Selectors {
		r.Selectors[i].Drivers = nil
	}
	return r.Fits(f)
}

// Assign returns the virtual functions of each resource, by String. One that fits several is the first one's. What the
// node itself uses is nobody's: ports of bonds and bridges, and interfaces by which a default route goes.
func Assign(all []Resource, functions []VirtualFunction, routed map[string]bool) map[string][]VirtualFunction {
	assigned := map[string][]VirtualFunction{}
	for _, f := range functions {
		isRouted := func(name string) bool { return routed[name] }
		if f.IsEnslaved || slices.ContainsFunc(f.Interfaces, isRouted) {
			continue
		}
		if i := slices.IndexFunc(all, func(r Resource) bool { return r.Fits(f) }); i >= 0 {
			assigned[all[i].String()] = append(assigned[all[i].String()], f)
		}
	}
	return assigned
}

// variable is the name of the variable with a container's addresses, as upstream's.
func (r Resource) variable() string {
	return strings.ToUpper(strings.ReplaceAll("PCIDEVICE_"+r.Prefix+"_"+r.Name, ".", "_"))
}

const (
	vfioDir  = "/dev/vfio"
	vhostNet = "/dev/vhost-net"
	tun      = "/dev/net/tun"
)

// info is what the variable PCIDEVICE_…_INFO says of one address, as upstream's.
type info struct {
	Extra   map[string]string `json:"extra,omitempty"`
	Generic struct {
		DeviceID string `json:"deviceID"`
	} `json:"generic"`
	RDMA     map[string]string `json:"rdma,omitempty"` // files by their names without a number, as uverbs, and rdma_dev
	VDPA     *vdpaInfo         `json:"vdpa,omitempty"`
	VFIO     *vfioInfo         `json:"vfio,omitempty"`
	VhostNet *vhostNetInfo     `json:"vhost,omitempty"`
}

type vdpaInfo struct {
	File string `json:"mount"`
}

type vhostNetInfo struct {
	VhostNet string `json:"net-mount"`
	Tun      string `json:"tun-mount"`
}

type vfioInfo struct {
	Group     string `json:"dev-mount"`
	Container string `json:"mount"`
}

// allocate is what a container gets with virtual functions.
func (r Resource) allocate(functions []VirtualFunction) (*pluginapi.ContainerAllocateResponse, error) {
	var addresses, files []string
	infos := map[string]info{}
	for _, f := range functions {
		addresses = append(addresses, f.Address)
		var i info
		i.Generic.DeviceID = f.Address
		if f.Driver == VFIODriver {
			if f.Group == "" {
				return nil, fmt.Errorf("virtual function %s of %s has no IOMMU group; start the node with its IOMMU on",
					f.Address, r)
			}
			i.VFIO = &vfioInfo{Group: path.Join(vfioDir, f.Group), Container: path.Join(vfioDir, "vfio")}
			files = append(files, i.VFIO.Group, i.VFIO.Container)
		}

		s, _ := r.selector(f)
		if s.IsRDMA {
			i.RDMA = map[string]string{"rdma_dev": f.RDMA.Name}
			for _, name := range f.RDMA.Files {
				file := path.Join(infinibandDir, name)
				i.RDMA[strings.TrimRight(name, "0123456789")] = file
				files = append(files, file)
			}
		}
		if s.VDPAType != "" && f.VDPA.File != "" {
			i.VDPA = &vdpaInfo{path.Join("/dev", f.VDPA.File)}
			files = append(files, i.VDPA.File)
		}
		if s.NeedsVhostNet {
			i.VhostNet = &vhostNetInfo{vhostNet, tun}
			files = append(files, vhostNet, tun)
		}
		i.Extra = r.Extra.of(f.Address)
		infos[f.Address] = i
	}

	text, err := json.Marshal(infos)
	if err != nil {
		return nil, fmt.Errorf("encode what %s is: %w", r, err)
	}
	answer := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{
		r.variable(): strings.Join(addresses, ","), r.variable() + "_INFO": string(text),
	}}
	if r.Numbered != "" {
		for i, a := range addresses {
			answer.Envs[fmt.Sprintf("%s%d", r.Numbered, i)] = a
		}
	}

	slices.Sort(files)
	for _, file := range slices.Compact(files) {
		answer.Devices = append(answer.Devices, &pluginapi.DeviceSpec{
			HostPath: file, ContainerPath: file, Permissions: "rw",
		})
	}
	return answer, nil
}
