package unknown

import (
	"encoding/json"
	"math"
	"net"
	"net/netip"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/status"
)

// What one machine may have.
const (
	maxDisks = 24
	maxNICs  = 24
)

// parse picks what people need from an inventory of ironic-python-agent (hardware.py, list_hardware_info), whatever is
// in it: what is missing or of another kind is left out.
func parse(mac string, said map[string]any, now time.Time) status.UnknownMachine {
	inventory := object(said, "inventory")
	vendor, cpu, memory := object(inventory, "system_vendor"), object(inventory, "cpu"), object(inventory, "memory")
	u := status.UnknownMachine{
		MAC:    mac,
		Time:   now,
		Model:  strings.TrimSpace(word(vendor, "manufacturer") + " " + word(vendor, "product_name")),
		Serial: word(vendor, "serial_number"),
		CPUs:   int(number(cpu, "count", 1<<16)),
		CPU:    word(cpu, "model_name"),
		Arch:   word(cpu, "architecture"),
		Memory: number(memory, "physical_mb", 1<<30) << 20,
		BMC:    bmcAddress(inventory),
		Mode:   word(object(inventory, "boot"), "current_boot_mode"),
	}
	for _, d := range objects(inventory, "disks", maxDisks) {
		u.Disks = append(u.Disks, status.UnknownDisk{
			Name:   word(d, "name"),
			Model:  word(d, "model"),
			Serial: word(d, "serial"),
			Bytes:  number(d, "size", math.MaxInt64>>1),
		})
	}

	for _, n := range objects(inventory, "interfaces", maxNICs) {
		if hardware, err := net.ParseMAC(word(n, "mac_address")); err == nil && len(hardware) == 6 {
			link, _ := n["has_carrier"].(bool)
			u.NICs = append(u.NICs, status.UnknownNIC{Name: word(n, "name"), MAC: hardware.String(), Link: link})
		}
	}

	return u
}

// bmcAddress is the first address of the BMC that can be one; "" if there is none.
func bmcAddress(inventory map[string]any) string {
	for _, key := range []string{"bmc_address", "bmc_v6address"} {
		addr, err := netip.ParseAddr(word(inventory, key))
		if err == nil && addr.Zone() == "" && addr.IsGlobalUnicast() {
			return addr.String()
		}
	}
	return ""
}

func object(of map[string]any, key string) map[string]any {
	o, _ := of[key].(map[string]any)
	return o
}

func objects(of map[string]any, key string, most int) (all []map[string]any) {
	list, _ := of[key].([]any)
	for _, one := range list[:min(len(list), most)] {
		if o, ok := one.(map[string]any); ok {
			all = append(all, o)
		}
	}
	return all
}

func word(of map[string]any, key string) string {
	s, _ := of[key].(string)
	return status.Word(s)
}

// number is a whole number from 0 to most; 0 if there is none.
func number(of map[string]any, key string, most int64) int64 {
	var n int64
	switch v := of[key].(type) {
	case json.Number:
		n, _ = v.Int64()
	case float64:
		if v >= 0 && v <= float64(most) {
			n = int64(v)
		}
	}
	if n < 0 || n > most {
		return 0
	}
	return n
}
