package redfish

import "fmt"

// Paths. DSP0266 fixes the first, the others are the BMC's to choose.
const (
	rootPath           = "/redfish/v1"
	systemsPath        = rootPath + "/Systems"
	systemPath         = systemsPath + "/1"
	resetPath          = systemPath + "/Actions/ComputerSystem.Reset"
	nicsPath           = systemPath + "/EthernetInterfaces"
	managersPath       = rootPath + "/Managers"
	managerPath        = managersPath + "/1"
	drivesPath         = managerPath + "/VirtualMedia"
	drivePath          = drivesPath + "/Cd"
	insertPath         = drivePath + "/Actions/VirtualMedia.InsertMedia"
	ejectPath          = drivePath + "/Actions/VirtualMedia.EjectMedia"
	sessionServicePath = rootPath + "/SessionService"
	sessionsPath       = sessionServicePath + "/Sessions"
)

// SystemPath is the path of the one system that each BMC has.
const SystemPath = systemPath

type object = map[string]any

func link(path string) object { return object{"@odata.id": path} }

func goodStatus() object { return object{"State": "Enabled", "Health": "OK"} }

// collection is a resource that only lists others, such as ComputerSystemCollection.
func collection(kind, path string, members ...string) object {
	links := []object{}
	for _, member := range members {
		links = append(links, link(member))
	}

	return object{
		"@odata.id":           path,
		"@odata.type":         fmt.Sprintf("#%[1]s.%[1]s", kind),
		"Name":                kind,
		"Members":             links,
		"Members@odata.count": len(links),
	}
}

func serviceRoot() object {
	return object{
		"@odata.id":      rootPath,
		"@odata.type":    "#ServiceRoot.v1_5_0.ServiceRoot",
		"Id":             "RootService",
		"Name":           "Root Service",
		"RedfishVersion": "1.6.0",
		"Systems":        link(systemsPath),
		"Managers":       link(managersPath),
		"SessionService": link(sessionServicePath),
		"Links":          object{"Sessions": link(sessionsPath)},
	}
}

func sessionService() object {
	return object{
		"@odata.id":      sessionServicePath,
		"@odata.type":    "#SessionService.v1_1_0.SessionService",
		"Id":             "SessionService",
		"Name":           "Session Service",
		"ServiceEnabled": true,
		"Sessions":       link(sessionsPath),
	}
}

func manager() object {
	return object{
		"@odata.id":       managerPath,
		"@odata.type":     "#Manager.v1_5_0.Manager",
		"Id":              "1",
		"Name":            "Manager",
		"ManagerType":     "BMC",
		"FirmwareVersion": "1",
		"PowerState":      "On",
		"Status":          goodStatus(),
		"VirtualMedia":    link(drivesPath),
		"Links":           object{"ManagerForServers": []object{link(systemPath)}},
	}
}

// system is the machine. b.mu is held.
func (b *BMC) system() object {
	power := "Off"
	if b.machine.IsOn() {
		power = "On"
	}

	return object{
		"@odata.id":    systemPath,
		"@odata.type":  "#ComputerSystem.v1_10_0.ComputerSystem",
		"Id":           "1",
		"Name":         b.config.Name,
		"SystemType":   "Physical",
		"Manufacturer": "QEMU",
		"SerialNumber": b.config.Serial,
		"PowerState":   power,
		"Status":       goodStatus(),
		"Boot": object{
			propertyTarget:  b.boot.Target,
			propertyEnabled: b.boot.Enabled,
			propertyMode:    b.mode(),
			propertyTarget + "@Redfish.AllowableValues": targets(),
		},
		"EthernetInterfaces": link(nicsPath),
		"Actions": object{"#ComputerSystem.Reset": object{
			"target":                            resetPath,
			"ResetType@Redfish.AllowableValues": resetTypes(),
		}},
		"Links": object{"ManagedBy": []object{link(managerPath)}},
	}
}

func nicPath(i int) string { return fmt.Sprintf("%s/%d", nicsPath, i+1) }

func (b *BMC) nics() object {
	var paths []string
	for i := range b.config.MACs {
		paths = append(paths, nicPath(i))
	}
	return collection("EthernetInterfaceCollection", nicsPath, paths...)
}

func (b *BMC) nic(i int) object {
	return object{
		"@odata.id":        nicPath(i),
		"@odata.type":      "#EthernetInterface.v1_5_0.EthernetInterface",
		"Id":               fmt.Sprint(i + 1),
		"Name":             "NIC",
		"MACAddress":       b.config.MACs[i].String(),
		"LinkStatus":       "LinkUp",
		"InterfaceEnabled": true,
		"Status":           goodStatus(),
	}
}
