package diagnose

import (
	"slices"

	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/daemon/metal/metal3"
)

// controllerBroken is when a disk is not found because nothing drives what it hangs on.
var controllerBroken = rule{
	name:    "controller-broken",
	meaning: "no disk was found, and the inspection found a disk controller without driver or firmware",
	fails:   true,
	percent: 30,
	since:   hostSince,
	matches: func(v View) bool {
		return v.Host != nil && findBroken(v, inspection.Device.IsStorage) != nil &&
			(isBlockedFor(v, metal3.ReasonDiskAmbiguous) || v.Host.Inspected && v.Host.Disks == 0 && hostError(v) != "" ||
				mentions(v, "no suitable device was found"))
	},
	sentence: func(v View) string {
		return "is not written to: its " + findBroken(v, inspection.Device.IsStorage).Describe()
	},
	next: func(v View) string { return nextForBroken(*findBroken(v, inspection.Device.IsStorage)) },
}

// nicBroken is when an installed node's network is not as given because nothing drives one of its cards.
var nicBroken = rule{
	name:    "nic-broken",
	meaning: "installed; its network is not as given, and the inspection found a NIC without driver or firmware",
	fails:   true,
	percent: 95,
	since:   deployedAt,
	matches: func(v View) bool {
		return findBroken(v, inspection.Device.IsNetwork) != nil && checkFailing("links", "addresses", "gateway", "dns")(v)
	},
	sentence: func(v View) string {
		return installedBut(v) + "; its " + findBroken(v, inspection.Device.IsNetwork).Describe()
	},
	next: func(v View) string { return nextForBroken(*findBroken(v, inspection.Device.IsNetwork)) },
}

// findBroken is the first device of a kind that nothing drives; nil if there is none.
func findBroken(v View, isOfKind func(inspection.Device) bool) *inspection.Device {
	if v.Host == nil {
		return nil
	}
	if i := slices.IndexFunc(v.Host.Broken, isOfKind); i >= 0 {
		return &v.Host.Broken[i]
	}
	return nil
}

// nextForBroken is what a person can do about a device.
func nextForBroken(d inspection.Device) string {
	switch d.Fault() {
	case inspection.NoDriver:
		if d.IsStorage() {
			return "set it to AHCI or HBA mode in the server's setup (not RAID), or put another controller in"
		}
		return "put another card in"
	case inspection.NoFirmware:
		return "put another card in; the image does not have what its driver loads into it"
	}
	return "check what its driver reports on the server's console; update its own firmware, or put another card in"
}
