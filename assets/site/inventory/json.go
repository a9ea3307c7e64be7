package inventory

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// readJSON reads what the API of NetBox or MAAS answers.
func (r *reader) readJSON(text []byte) error {
	if text[0] == '[' {
		return r.readList(text)
	}

	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	if results, ok := object["results"]; ok {
		if next := string(object["next"]); next != "" && next != "null" {
			r.note("it is a part of a longer list: ask with limit=0")
		}
		return r.readList(results)
	}
	return r.readPowers(object)
}

func (r *reader) readList(text []byte) error {
	var all []json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for i, one := range all {
		var kind struct {
			SystemID   *string          `json:"system_id"`
			Device     *json.RawMessage `json:"device"`
			DeviceType *json.RawMessage `json:"device_type"`
		}
		err := json.Unmarshal(one, &kind)
		switch {
		case err != nil:
		case kind.SystemID != nil:
			err = r.addMachine(one)
		case kind.Device != nil:
			err = r.addInterface(one)
		case kind.DeviceType != nil:
			err = r.addDevice(one)
		default:
			err = errors.New("it is neither a device or an interface of NetBox nor a machine of MAAS")
		}
		if err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	return nil
}

// leftOut are the states of NetBox in which a device is no server to install.
var leftOut = []string{"offline", "failed", "inventory", "decommissioning"}

// addDevice takes a device of NetBox (GET /api/dcim/devices/).
func (r *reader) addDevice(text []byte) error {
	var d struct {
		Name   string
		Serial string
		Status struct{ Value string }
		Rack   struct{ Name string }
		Role   struct{ Slug string }
		OOBIP  struct{ Address string } `json:"oob_ip"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	if slices.Contains(leftOut, d.Status.Value) {
		r.skipped = append(r.skipped, hostName(d.Name))
		r.note("%s is left out: its status is %s", d.Name, d.Status.Value)
		return nil
	}
	s := r.get(d.Name)
	if s == nil {
		r.note("a device without a name is left out")
		return nil
	}
	s.setBMC(d.OOBIP.Address)
	s.setLabel("rack", d.Rack.Name)
	s.setLabel("serial", d.Serial)
	s.setLabel("role", d.Role.Slug)
	return nil
}

// addInterface takes an interface of NetBox (GET /api/dcim/interfaces/). Those of management alone are the BMC's.
func (r *reader) addInterface(text []byte) error {
	var i struct {
		Device     struct{ Name string }
		MgmtOnly   bool    `json:"mgmt_only"`
		MACAddress *string `json:"mac_address"`
	}
	if err := json.Unmarshal(text, &i); err != nil {
		return err
	}
	if s := r.get(i.Device.Name); s != nil && !i.MgmtOnly && i.MACAddress != nil {
		s.addMAC(*i.MACAddress)
	}
	return nil
}

// addMachine takes a machine of MAAS (maas PROFILE machines read).
func (r *reader) addMachine(text []byte) error {
	type nic struct {
		MACAddress string `json:"mac_address"`
	}
	var m struct {
		SystemID      string `json:"system_id"`
		Hostname      string
		BootInterface *nic  `json:"boot_interface"`
		InterfaceSet  []nic `json:"interface_set"`
		Pool          struct{ Name string }
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	s := r.get(m.Hostname)
	if s == nil {
		r.note("machine %s is left out: it has no host name", m.SystemID)
		return nil
	}
	s.systemID = m.SystemID
	if m.BootInterface != nil {
		s.addMAC(m.BootInterface.MACAddress)
	}
	for _, n := range m.InterfaceSet {
		s.addMAC(n.MACAddress)
	}
	s.setLabel("pool", m.Pool.Name)
	return nil
}

// power is how MAAS reaches a BMC.
type power struct {
	Address  string `json:"power_address"`
	Username string `json:"power_user"`
	Password string `json:"power_pass"`
	NodeID   string `json:"node_id"` // of Redfish; "" of IPMI
}

// readPowers takes what MAAS has of BMCs, by system ID (maas PROFILE machines power-parameters).
func (r *reader) readPowers(object map[string]json.RawMessage) error {
	for id, text := range object {
		var p power
		if err := json.Unmarshal(text, &p); err != nil {
			return fmt.Errorf("it is neither NetBox's nor MAAS' JSON: %s: %w", id, err)
		}
		r.powers[id] = p
	}
	return nil
}

// assignPowers gives machines of MAAS their BMCs.
func (r *reader) assignPowers() {
	for _, name := range r.order {
		s := r.servers[name]
		p, ok := r.powers[s.systemID]
		if !ok || p.Address == "" {
			continue
		}
		if p.NodeID != "" {
			scheme, host, hasScheme := strings.Cut(strings.TrimSuffix(p.Address, "/"), "://")
			switch {
			case !hasScheme:
				scheme, host = "redfish", scheme
			case scheme == "https":
				scheme = "redfish"
			default:
				scheme = "redfish+" + scheme
			}
			s.bmc = scheme + "://" + host + "/redfish/v1/Systems/" + p.NodeID
		} else {
			s.setBMC(p.Address)
		}
		s.username, s.password = p.Username, p.Password
	}
}
