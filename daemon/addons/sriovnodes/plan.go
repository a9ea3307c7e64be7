package sriovnodes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"firstlight.dev/firstlight/daemon/addons/devices"
)

// Device types of policies.
const (
	netDevice = "netdevice"
	vfio      = devices.VFIODriver
)

// Plan is what one physical function is to have.
type Plan struct {
	Address string
	Name    string // of its network interface
	NumVfs  int
	MTU     int // bytes; 0 leaves it
	VFs     []VFPlan
}

// VFPlan is what one virtual function is to be; one that no policy names has no Resource.
type VFPlan struct {
	DeviceType string
	Resource   string // resourceName of its policy
	RDMA       bool   // pods get its devices of RDMA
}

// rule is a policy whose selector was read.
type rule struct {
	Policy
	pfNames, rootDevices []devices.PFSelector
}

// MakePlans decides what the physical functions of a node with some labels are to have. A policy that cannot be is a fault,
// and the others count.
func MakePlans(all []Policy, nodeLabels map[string]string, interfaces []Interface) (plans []Plan, faults []error) {
	var rules []rule
	for _, p := range all {
		if !labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(nodeLabels)) {
			continue
		}
		r, err := parsePolicy(p)
		if err != nil {
			faults = append(faults, fmt.Errorf("policy %s: %w", p.Name, err))
			continue
		}
		rules = append(rules, r)
	}
	slices.SortFunc(rules, func(a, b rule) int {
		return cmp.Or(cmp.Compare(a.Spec.Priority, b.Spec.Priority), strings.Compare(a.Name, b.Name))
	})

	for _, i := range interfaces {
		matching := slices.DeleteFunc(slices.Clone(rules), func(r rule) bool { return !r.selects(i) })
		if len(matching) == 0 {
			continue
		}
		plan, err := makePlan(i, matching)
		faults = append(faults, err...)
		if plan != nil {
			plans = append(plans, *plan)
		}
	}
	return plans, faults
}

func makePlan(i Interface, matching []rule) (*Plan, []error) {
	var faults []error
	first := matching[0]
	plan := &Plan{Address: i.PCIAddress, Name: i.Name, NumVfs: first.Spec.NumVfs, MTU: first.Spec.MTU}
	if plan.NumVfs > i.TotalVfs {
		return nil, []error{fmt.Errorf("policy %s: %s can have %d virtual functions, not %d; lower numVfs",
			first.Name, i.describe(), i.TotalVfs, plan.NumVfs)}
	}
	for _, r := range matching[1:] {
		if r.Spec.NumVfs != plan.NumVfs {
			faults = append(faults, fmt.Errorf("policy %s: %s has %d virtual functions by policy %s, which comes first; "+
				"give both the same numVfs", r.Name, i.describe(), plan.NumVfs, first.Name))
		}
	}

	for n := range plan.NumVfs {
		vf := VFPlan{DeviceType: netDevice}
		if at := slices.IndexFunc(matching, func(r rule) bool { return r.has(i, n) }); at >= 0 {
			s := matching[at].Spec
			vf = VFPlan{DeviceType: s.DeviceType, Resource: s.ResourceName, RDMA: s.IsRDMA}
		}
		plan.VFs = append(plan.VFs, vf)
	}
	return plan, faults
}

func (i Interface) describe() string {
	if i.Name != "" {
		return i.Name
	}
	return i.PCIAddress
}

func parsePolicy(p Policy) (r rule, err error) {
	r.Policy = p
	s := &r.Spec
	if s.DeviceType == "" {
		s.DeviceType = netDevice
	}
	n := s.NICSelector
	switch {
	case s.DeviceType != netDevice && s.DeviceType != vfio:
		return r, fmt.Errorf("deviceType %q is neither %s nor %s", s.DeviceType, netDevice, vfio)
	case s.IsRDMA && s.DeviceType == vfio:
		return r, fmt.Errorf("isRdma needs the kernel's driver, not deviceType %s; remove one of them", vfio)
	case s.NumVfs < 0:
		return r, fmt.Errorf("numVfs %d is negative", s.NumVfs)
	case s.MTU < 0:
		return r, fmt.Errorf("mtu %d is negative", s.MTU)
	case s.ResourceName == "" || len(validation.IsQualifiedName(Prefix+"/"+s.ResourceName)) > 0:
		return r, fmt.Errorf("resourceName %q is no name of a resource; use letters, digits and '_'", s.ResourceName)
	case n.Vendor == "" && n.DeviceID == "" && len(n.PFNames) == 0 && len(n.RootDevices) == 0:
		return r, errors.New("nicSelector selects nothing; give it vendor, deviceID, pfNames or rootDevices")
	}
	if r.pfNames, err = devices.ParsePFSelectors("pfNames", n.PFNames); err != nil {
		return r, err
	}
	if r.rootDevices, err = devices.ParsePFSelectors("rootDevices", n.RootDevices); err != nil {
		return r, err
	}
	for _, p := range slices.Concat(r.pfNames, r.rootDevices) {
		for _, one := range p.Ranges {
			if one.Last >= s.NumVfs {
				return r, fmt.Errorf("%s has virtual functions 0 to %d by numVfs, and nicSelector names %d",
					p.Name, s.NumVfs-1, one.Last)
			}
		}
	}
	return r, nil
}

// selects reports whether a policy is about a physical function.
func (r rule) selects(i Interface) bool {
	n := r.Spec.NICSelector
	named := func(list []devices.PFSelector, name string) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(p devices.PFSelector) bool { return p.Name == name })
	}
	return (n.Vendor == "" || strings.EqualFold(n.Vendor, i.Vendor)) &&
		(n.DeviceID == "" || strings.EqualFold(n.DeviceID, i.DeviceID)) &&
		named(r.pfNames, i.Name) && named(r.rootDevices, i.PCIAddress)
}

// has reports whether a policy is about one virtual function of a physical one that it selects.
func (r rule) has(i Interface, index int) bool {
	in := func(list []devices.PFSelector, name string) bool {
		if len(list) == 0 {
			return true
		}
		return slices.ContainsFunc(list, func(p devices.PFSelector) bool {
			return p.Name == name && (len(p.Ranges) == 0 || slices.ContainsFunc(p.Ranges, func(one devices.Range) bool {
				return one.First <= index && index <= one.Last
			}))
		})
	}
	return in(r.pfNames, i.Name) && in(r.rootDevices, i.PCIAddress)
}

// EncodeResources is the configuration of the device plugin that offers what plans have: the form that devices.ParseConfig
// reads.
func EncodeResources(plans []Plan) ([]byte, error) {
	type selector struct {
		Drivers     []string `json:"drivers,omitempty"`
		RootDevices []string `json:"rootDevices"`
		IsRDMA      bool     `json:"isRdma,omitempty"`
	}
	type resource struct {
		Name      string     `json:"resourceName"`
		Prefix    string     `json:"resourcePrefix"`
		Selectors []selector `json:"selectors"`
	}
	list := []*resource{}
	for _, p := range plans {
		groups := map[VFPlan][]string{}
		var order []VFPlan
		for n, vf := range p.VFs {
			if vf.Resource == "" {
				continue
			}
			if groups[vf] == nil {
				order = append(order, vf)
			}
			groups[vf] = append(groups[vf], fmt.Sprint(n))
		}
		for _, vf := range order {
			at := slices.IndexFunc(list, func(r *resource) bool { return r.Name == vf.Resource })
			if at < 0 {
				list = append(list, &resource{Name: vf.Resource, Prefix: Prefix})
				at = len(list) - 1
			}
			s := selector{RootDevices: []string{p.Address + "#" + strings.Join(groups[vf], ",")}, IsRDMA: vf.RDMA}
			if vf.DeviceType == vfio {
				s.Drivers = []string{vfio}
			}
			list[at].Selectors = append(list[at].Selectors, s)
		}
	}
	return json.MarshalIndent(map[string]any{"resourceList": list}, "", "  ")
}
