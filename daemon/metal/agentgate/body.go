package agentgate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// parseObject reads a JSON object. What is passed on is encoded again from it: where a key occurs twice or in another
// case, Ironic then reads the value that was checked here.
func parseObject(body []byte) (map[string]any, error) {
	reader := json.NewDecoder(bytes.NewReader(body))
	reader.UseNumber()
	var object map[string]any
	if err := reader.Decode(&object); err != nil {
		return nil, err
	}
	if _, err := reader.Token(); !errors.Is(err, io.EOF) || object == nil {
		return nil, errors.New("not one object")
	}

	return object, nil
}

// checkHeartbeat refuses to have the conductor sent elsewhere than to the machine that calls: it follows the address
// with the node's secrets in its hands.
func checkHeartbeat(said map[string]any, from netip.Addr) *Refusal {
	callback, _ := said["callback_url"].(string)
	host := strings.TrimSuffix(netip.AddrPortFrom(from, 0).String(), "0") // of IPv6 in brackets
	port, ok := strings.CutPrefix(callback, "https://"+host)
	if _, err := strconv.ParseUint(port, 10, 16); !ok || err != nil {
		return &Refusal{ReasonCallback, clean(callback)}
	}
	return nil
}

// checkInventory refuses an inventory that is not of the machine that was booted. Ironic looks for its node by all MACs
// in it: owner names the host that boots from a MAC, "" if there is none.
func checkInventory(said map[string]any, b Boot, owner func(mac string) string) *Refusal {
	macs := inventoryMACs(said)
	if !slices.Contains(macs, b.MAC) {
		return &Refusal{ReasonNode, "the inventory of a machine without " + b.MAC}
	}

	for _, mac := range macs {
		if host := owner(mac); host != "" && host != b.Host {
			return &Refusal{ReasonNode, fmt.Sprintf("host %s, with MAC %s", host, clean(mac))}
		}
	}

	return nil
}

// inventoryMACs are those of all NICs of an inventory, lower case.
func inventoryMACs(said map[string]any) []string {
	found, _ := said["inventory"].(map[string]any)
	nics, _ := found["interfaces"].([]any)
	var macs []string
	for _, nic := range nics {
		values, _ := nic.(map[string]any)
		if mac, ok := values["mac_address"].(string); ok {
			macs = append(macs, strings.ToLower(mac))
		}
	}

	return macs
}

// inventoryBMCs are the addresses of the BMC that an inventory names.
func inventoryBMCs(said map[string]any) []string {
	found, _ := said["inventory"].(map[string]any)
	var all []string
	for _, key := range []string{"bmc_address", "bmc_v6address"} {
		if addr, ok := found[key].(string); ok && addr != "" {
			all = append(all, addr)
		}
	}

	return all
}
