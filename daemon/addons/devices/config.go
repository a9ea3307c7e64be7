package devices

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultPrefix is upstream's, of resources that name none.
const DefaultPrefix = "intel.com"

// auxNetDevice is upstream's deviceType of subfunctions, which are below network devices.
const auxNetDevice = "auxNetDevice"

// classesOf are the classes of PCI devices, by upstream's deviceType.
var classesOf = map[string][]string{
	"netDevice":   {"02"},
	"accelerator": {"12"},
	auxNetDevice:  {"02"},
}

// resourceConfig is one of resourceList, as upstream's (README of sriov-network-device-plugin, "Config parameters").
type resourceConfig struct {
	ResourceName    string          `json:"resourceName"`
	ResourcePrefix  string          `json:"resourcePrefix"`
	DeviceType      string          `json:"deviceType"`
	ExcludeTopology bool            `json:"excludeTopology"`
	Selectors       json.RawMessage `json:"selectors"` // a selector, or a list of them
	IsRdma          bool            `json:"isRdma"`    // as before release 3.1: of all selectors
	AdditionalInfo  Extra           `json:"additionalInfo"`
}

type selectorConfig struct {
	Vendors      []string `json:"vendors"`
	Devices      []string `json:"devices"`
	Drivers      []string `json:"drivers"`
	PCIAddresses []string `json:"pciAddresses"`
	PFNames      []string `json:"pfNames"`
	RootDevices  []string `json:"rootDevices"`
	LinkTypes    []string `json:"linkTypes"`
	NeedVhostNet bool     `json:"needVhostNet"`
	ACPIIndexes  []string `json:"acpiIndexes"`
	PKeys        []string `json:"pKeys"`
	IsRdma       bool     `json:"isRdma"`
	VDPAType     string   `json:"vdpaType"`
	AuxTypes     []string `json:"auxTypes"`
	DDPProfiles  []string `json:"ddpProfiles"` // not offered
}

// ParseConfig reads upstream's config.json. A fault keeps the one resource from being offered that it is in; each is a
// sentence that names the resource.
func ParseConfig(text []byte) (all []Resource, faults []error) {
	var config struct {
		ResourceList []json.RawMessage `json:"resourceList"`
	}
	if err := decodeStrictly(text, &config); err != nil {
		return nil, []error{fmt.Errorf("the configuration is no JSON object with resourceList: %w", err)}
	}

	seen := map[string]bool{}
	for i, one := range config.ResourceList {
		r, err := parseResource(one)
		where := fmt.Sprintf("resource %d of resourceList", i+1)
		if r.Name != "" {
			where += fmt.Sprintf(" (%s)", r)
		}
		if err == nil && seen[r.String()] {
			err = errors.New("an earlier one has the same name; rename one of them")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", where, err))
			continue
		}
		seen[r.String()] = true
		all = append(all, r)
	}
	return all, faults
}

func parseResource(text []byte) (Resource, error) {
	var c resourceConfig
	err := decodeStrictly(text, &c)
	r := Resource{Prefix: c.ResourcePrefix, Name: c.ResourceName, ExcludeTopology: c.ExcludeTopology}
	if r.Prefix == "" {
		r.Prefix = DefaultPrefix
	}
	if err != nil {
		return r, err
	}

	if c.DeviceType == "" {
		c.DeviceType = "netDevice"
	}
	r.Classes, r.HasSubfunctions = classesOf[c.DeviceType], c.DeviceType == auxNetDevice
	switch {
	case r.Name == "":
		return r, errors.New("it has no resourceName")
	case len(validation.IsQualifiedName(r.String())) > 0 || len(validation.IsDNS1123Subdomain(r.Prefix)) > 0:
		return r, errors.New("that is no name of a resource; resourcePrefix is a domain, and resourceName has letters, " +
			"digits, '-' and '_'")
	case r.Classes == nil:
		return r, fmt.Errorf("deviceType %q is not netDevice, accelerator or auxNetDevice", c.DeviceType)
	}
	for _, address := range slices.Sorted(maps.Keys(c.AdditionalInfo)) {
		if address != "*" && !pciAddress.MatchString(address) && !auxName.MatchString(address) {
			return r, fmt.Errorf("additionalInfo: %q is no address; write 0000:3b:02.0, mlx5_core.sf.2, or * for all", address)
		}
	}
	r.Extra = c.AdditionalInfo

	r, err = parseSelectors(r, c.Selectors)
	if err == nil && c.IsRdma {
		r = r.requireRDMA()
	}
	return r, err
}

// requireRDMA has a resource select what has RDMA alone.
func (r Resource) requireRDMA() Resource {
	if len(r.Selectors) == 0 {
		r.Selectors = []Selector{{}}
	}
	for i := range r.Selectors {
		r.Selectors[i].IsRDMA = true
	}
	return r
}

func parseSelectors(r Resource, text json.RawMessage) (Resource, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || string(text) == "null" {
		return r, nil
	}

	var all []selectorConfig
	if text[0] == '[' {
		if err := decodeStrictly(text, &all); err != nil {
			return r, fmt.Errorf("selectors: %w", err)
		}
	} else {
		var one selectorConfig
		if err := decodeStrictly(text, &one); err != nil {
			return r, fmt.Errorf("selectors: %w", err)
		}
		all = append(all, one)
	}

	for _, c := range all {
		s, err := parseSelector(c)
		if err == nil {
			err = c.checkKind(r.HasSubfunctions)
		}
		if err != nil {
			return r, fmt.Errorf("selectors: %w", err)
		}
		r.Selectors = append(r.Selectors, s)
	}
	return r, nil
}

var (
	number     = regexp.MustCompile(`^[0-9]+$`)
	fourDigits = regexp.MustCompile(`^[0-9a-f]{4}$`)
	pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
)

func parseSelector(c selectorConfig) (s Selector, err error) {
	switch {
	case len(c.DDPProfiles) > 0:
		return s, errors.New("ddpProfiles is not offered: drivers tell profiles by devlink or ethtool, which nothing here " +
			"reads; select by pfNames or rootDevices")
	case c.VDPAType != "" && c.VDPAType != "vhost" && c.VDPAType != "virtio":
		return s, fmt.Errorf("vdpaType %q is neither vhost nor virtio", c.VDPAType)
	case c.VDPAType != "" && c.IsRdma:
		return s, errors.New("isRdma and vdpaType exclude each other; remove one of them")
	}

	s.Drivers, s.LinkTypes, s.AuxTypes = c.Drivers, c.LinkTypes, c.AuxTypes
	s.IsRDMA, s.VDPAType, s.NeedsVhostNet = c.IsRdma, c.VDPAType, c.NeedVhostNet
	if s.Vendors, err = parseIdentifiers("vendors", c.Vendors, fourDigits, "8086"); err != nil {
		return s, err
	}
	if s.Devices, err = parseIdentifiers("devices", c.Devices, fourDigits, "154c"); err != nil {
		return s, err
	}
	if s.Addresses, err = parseIdentifiers("pciAddresses", c.PCIAddresses, pciAddress, "0000:3b:02.0"); err != nil {
		return s, err
	}
	if s.ACPIIndexes, err = parseIdentifiers("acpiIndexes", c.ACPIIndexes, number, "101"); err != nil {
		return s, err
	}
	for _, text := range c.PKeys {
		key, err := parsePKey(text)
		if err != nil {
			return s, fmt.Errorf("pKeys: %q cannot be; write it as 0x7fff", text)
		}
		s.PKeys = append(s.PKeys, key)
	}
	if s.PFNames, err = ParsePFSelectors("pfNames", c.PFNames); err != nil {
		return s, err
	}
	if s.RootDevices, err = ParsePFSelectors("rootDevices", c.RootDevices); err != nil {
		return s, err
	}
	for _, p := range s.RootDevices {
		if !pciAddress.MatchString(p.Name) {
			return s, fmt.Errorf("rootDevices: %q is no address; write 0000:3b:00.0", p.Name)
		}
	}
	return s, nil
}

// checkKind refuses what upstream has for another kind of devices.
func (c selectorConfig) checkKind(isOfSubfunctions bool) error {
	if !isOfSubfunctions && len(c.AuxTypes) > 0 {
		return fmt.Errorf("auxTypes is for deviceType %s alone; set that, or remove auxTypes", auxNetDevice)
	}
	for _, field := range []struct {
		name    string
		isThere bool
	}{
		{"pciAddresses", len(c.PCIAddresses) > 0},
		{"acpiIndexes", len(c.ACPIIndexes) > 0},
		{"pKeys", len(c.PKeys) > 0},
		{"vdpaType", c.VDPAType != ""},
		{"needVhostNet", c.NeedVhostNet},
	} {
		if isOfSubfunctions && field.isThere {
			return fmt.Errorf("%s is not for deviceType %s; remove it", field.name, auxNetDevice)
		}
	}
	return nil
}

func parseIdentifiers(field string, all []string, form *regexp.Regexp, example string) ([]string, error) {
	var list []string
	for _, text := range all {
		id := strings.ToLower(strings.TrimPrefix(text, "0x"))
		if !form.MatchString(id) {
			return nil, fmt.Errorf("%s: %q cannot be; write it as %s", field, text, example)
		}
		list = append(list, id)
	}
	return list, nil
}

// ParsePFSelectors reads physical functions, each with the numbers of its virtual functions: NAME#0,2-7. Without numbers
// it is all of them.
func ParsePFSelectors(field string, all []string) ([]PFSelector, error) {
	var list []PFSelector
	for _, text := range all {
		name, numbers, hasNumbers := strings.Cut(text, "#")
		p := PFSelector{Name: name}
		wrong := fmt.Errorf("%s: %q cannot be; write NAME, or NAME#0,2-7 for some of its virtual functions", field, text)
		if name == "" {
			return nil, wrong
		}
		for one := range strings.SplitSeq(numbers, ",") {
			if !hasNumbers {
				break
			}
			r, ok := parseRange(one)
			if !ok {
				return nil, wrong
			}
			p.Ranges = append(p.Ranges, r)
		}
		list = append(list, p)
	}
	return list, nil
}

// parseRange reads N or N-M.
func parseRange(text string) (Range, bool) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err := strconv.ParseUint(from, 10, 16)
	if err != nil {
		return Range{}, false
	}
	last, err := strconv.ParseUint(to, 10, 16)
	return Range{int(first), int(last)}, err == nil && first <= last
}

// decodeStrictly refuses fields that nothing reads: a misspelled selector would select everything.
func decodeStrictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	return nil
}
