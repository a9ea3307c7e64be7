package simulator

import (
	"cmp"
	"fmt"
)

// The resources that a BMC shows, as far as Ironic's redfish driver and people with a browser look.

func odataLink(path string) object { return object{"@odata.id": path} }

func serviceRoot() object {
	return object{
		"@odata.id":      rootPath,
		"@odata.type":    "#ServiceRoot.v1_5_0.ServiceRoot",
		"Id":             "RootService",
		"Name":           "Root Service",
		"RedfishVersion": "1.6.0",
		"UUID":           uuid(0),
		"Systems":        odataLink(rootPath + "/Systems"),
		"Managers":       odataLink(rootPath + "/Managers"),
		"Chassis":        odataLink(rootPath + "/Chassis"),
		"AccountService": odataLink(accountsPath),
		"SessionService": odataLink(rootPath + "/SessionService"),
		"Links":          object{"Sessions": odataLink(sessionsPath)},
	}
}

func collection(kind, path string, members ...string) object {
	links := []object{}
	for _, m := range members {
		links = append(links, odataLink(m))
	}
	return object{
		"@odata.id":           path,
		"@odata.type":         kind,
		"Name":                "Collection",
		"Members":             links,
		"Members@odata.count": len(links),
	}
}

func (h *Server) system() object {
	h.mu.Lock()
	defer h.mu.Unlock()
	power := "Off"
	if h.running != nil {
		power = "On"
	}

	boot := object{
		"BootSourceOverrideTarget":                         cmp.Or(h.override.Target, "None"),
		"BootSourceOverrideEnabled":                        cmp.Or(h.override.Enabled, "Disabled"),
		"BootSourceOverrideMode":                           cmp.Or(h.override.Mode, "UEFI"),
		"BootSourceOverrideTarget@Redfish.AllowableValues": bootTargets(),
	}
	return object{
		"@odata.id":          systemPath,
		"@odata.type":        "#ComputerSystem.v1_10_0.ComputerSystem",
		"Id":                 "1",
		"Name":               h.Name,
		"UUID":               uuid(h.index),
		"SystemType":         "Physical",
		"Manufacturer":       manufacturer,
		"Model":              model,
		"SerialNumber":       h.serial(),
		"PowerState":         power,
		"Status":             object{"State": "Enabled", "Health": "OK"},
		"Boot":               boot,
		"MemorySummary":      object{"TotalSystemMemoryGiB": memory >> 30},
		"ProcessorSummary":   object{"Count": 2},
		"EthernetInterfaces": odataLink(nicsPath),
		"Actions": object{"#ComputerSystem.Reset": object{
			"target":                            resetPath,
			"ResetType@Redfish.AllowableValues": resetTypes(),
		}},
		"Links": object{
			"ManagedBy": []object{odataLink(managerPath)},
			"Chassis":   []object{odataLink(chassisPath)},
		},
	}
}

// nic is the one NIC that a server has.
func (h *Server) nic() object {
	return object{
		"@odata.id":        nicsPath + "/1",
		"@odata.type":      "#EthernetInterface.v1_5_0.EthernetInterface",
		"Id":               "1",
		"Name":             "NIC",
		"MACAddress":       h.MAC,
		"LinkStatus":       "LinkUp",
		"InterfaceEnabled": true,
		"Status":           object{"State": "Enabled", "Health": "OK"},
	}
}

func manager() object {
	return object{
		"@odata.id":           managerPath,
		"@odata.type":         "#Manager.v1_5_0.Manager",
		"Id":                  "1",
		"Name":                "Manager",
		"ManagerType":         "BMC",
		"UUID":                uuid(0),
		"Model":               model,
		"FirmwareVersion":     "1.00",
		"DateTime":            timestamp(),
		"DateTimeLocalOffset": "+00:00",
		"PowerState":          "On",
		"Status":              object{"State": "Enabled", "Health": "OK"},
		"Links":               object{"ManagerForServers": []object{odataLink(systemPath)}},
		"Actions": object{"#Manager.Reset": object{
			"target":                            managerPath + "/Actions/Manager.Reset",
			"ResetType@Redfish.AllowableValues": []string{"GracefulRestart"},
		}},
	}
}

func chassis() object {
	return object{
		"@odata.id":   chassisPath,
		"@odata.type": "#Chassis.v1_10_0.Chassis",
		"Id":          "1",
		"Name":        "Chassis",
		"ChassisType": "RackMount",
		"Status":      object{"State": "Enabled", "Health": "OK"},
		"Links": object{
			"ComputerSystems": []object{odataLink(systemPath)},
			"ManagedBy":       []object{odataLink(managerPath)},
		},
	}
}

func sessionService() object {
	return object{
		"@odata.id":      rootPath + "/SessionService",
		"@odata.type":    "#SessionService.v1_1_0.SessionService",
		"Id":             "SessionService",
		"Name":           "Session Service",
		"ServiceEnabled": true,
		"SessionTimeout": 3600,
		"Sessions":       odataLink(sessionsPath),
	}
}

// account is a user of the BMC (schema ManagerAccount); the first slot is empty, as many BMCs have some.
func account(slot int, user string) object {
	return object{
		"@odata.id":   accountPath(slot),
		"@odata.type": "#ManagerAccount.v1_3_0.ManagerAccount",
		"Id":          fmt.Sprint(slot),
		"Name":        "User Account",
		"UserName":    user,
		"Password":    nil,
		"RoleId":      "Administrator",
		"Enabled":     user != "",
		"Locked":      false,
	}
}

func accountService() object {
	return object{
		"@odata.id":         accountsPath,
		"@odata.type":       "#AccountService.v1_5_0.AccountService",
		"Id":                "AccountService",
		"Name":              "Account Service",
		"ServiceEnabled":    true,
		"MinPasswordLength": minPassword,
		"MaxPasswordLength": maxPassword,
		"Accounts":          odataLink(accountsPath + "/Accounts"),
	}
}

// What the hardware is.
const (
	manufacturer = "Firstlight Lab"
	model        = "Imaginary 1"
	memory       = 64 << 30 // bytes
)

func (h *Server) serial() string { return fmt.Sprintf("SN%04d", h.index) }
