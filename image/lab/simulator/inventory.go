package simulator

import (
	"cmp"
	"fmt"

	"firstlight.dev/firstlight/assets/inspection"
)

// inventory is what the agent finds in the host: what ironic-python-agent's collector "default" tells, and
// the appliance's own (overlays/ramdisk) of what lies on the disks.
func (h *Server) inventory() object {
	disks, contents := []object{}, object{}
	for _, d := range h.Disks() {
		contents[d.Name] = d.report()
		disks = append(disks, object{
			"name":                 d.Name,
			"model":                "IMAGINARY DISK",
			"size":                 d.Size,
			"rotational":           false,
			"serial":               d.Serial,
			"vendor":               "FIRSTLIT",
			"wwn":                  d.wwn(),
			"wwn_with_extension":   nil,
			"wwn_vendor_extension": nil,
			"hctl":                 "0:0:0:0",
			"by_path":              nil,
			"logical_sectors":      512,
			"physical_sectors":     4096,
		})
	}

	var first any
	if len(disks) > 0 {
		first = disks[0]
	}

	h.mu.Lock()
	inBand := h.inBand
	h.mu.Unlock()
	nic := object{
		"name": "eth0", "mac_address": h.MAC, "ipv4_address": h.reportedAddr(),
		"ipv6_address": nil, "has_carrier": true, "lldp": nil,
		"vendor": "0x8086", "product": "0x1572", "client_id": nil, "biosdevname": nil, "speed_mbps": 10000,
	}
	return object{
		"inventory": object{
			"interfaces": []object{nic},
			"disks":      disks,
			"memory":     object{"total": memory, "physical_mb": memory >> 20},
			"cpu": object{
				"model_name":   "Imaginary CPU",
				"frequency":    "2400.0",
				"count":        32,
				"architecture": "x86_64",
				"flags":        []string{"aes", "vmx"},
				"socket_count": 2,
			},
			"system_vendor": object{
				"manufacturer":  manufacturer,
				"product_name":  model,
				"serial_number": h.serial(),
				"firmware":      object{"vendor": manufacturer, "version": "1.0", "build_date": "01/01/2026"},
			},
			"boot":          object{"current_boot_mode": "uefi", "pxe_interface": h.MAC},
			"hostname":      h.Name,
			"bmc_address":   cmp.Or(inBand, "0.0.0.0"),
			"bmc_v6address": "::/0",
			"bmc_mac":       nil,
		},
		inspection.Key:   contents,
		"root_disk":      first,
		"boot_interface": h.MAC,
		"error":          nil,
		"configuration": object{
			"collectors": []string{"default", "contents"},
			"managers":   []object{{"name": "generic_hardware_manager", "version": "1.2"}},
		},
	}
}

// reportedAddr is what the agent says of its address. Ironic passes over NICs with a loopback address, so it is told
// another one (RFC 5737).
func (h *Server) reportedAddr() string {
	if addr := h.addr(); !addr.IsLoopback() {
		return addr.String()
	}
	return fmt.Sprintf("198.51.100.%d", h.index%256)
}
