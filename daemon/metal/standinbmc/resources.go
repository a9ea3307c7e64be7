package standinbmc

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
)

// The resources, as far as Ironic's redfish driver looks (DMTF, DSP0268).

type object = map[string]any

func link(path string) object { return object{"@odata.id": path} }

func resetTypes() []string {
	return []string{"On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart"}
}

func serviceRoot() object {
	return object{
		"@odata.id":      root,
		"@odata.type":    "#ServiceRoot.v1_5_0.ServiceRoot",
		"Id":             "RootService",
		"Name":           "Stand-in for servers without a BMC",
		"RedfishVersion": "1.6.0",
		"Systems":        link(systems),
		"Managers":       link(managers),
		"Links":          object{},
	}
}

func system(name string, s State) object {
	path := systems + "/" + url.PathEscape(name)
	return object{
		"@odata.id":   path,
		"@odata.type": "#ComputerSystem.v1_10_0.ComputerSystem",
		"Id":          name,
		"Name":        name,
		"SystemType":  "Physical",
		"PowerState":  s.Power,
		"Status":      object{"State": "Enabled", "Health": "OK"},
		"Boot": object{
			"BootSourceOverrideTarget":                         cmp.Or(s.Target, "None"),
			"BootSourceOverrideEnabled":                        cmp.Or(s.Enabled, "Disabled"),
			"BootSourceOverrideMode":                           cmp.Or(s.Mode, "UEFI"),
			"BootSourceOverrideTarget@Redfish.AllowableValues": []string{"None", "Pxe", "Hdd"},
		},
		"Actions": object{"#ComputerSystem.Reset": object{
			"target":                            path + resetTo,
			"ResetType@Redfish.AllowableValues": resetTypes(),
		}},
		"Links": object{"ManagedBy": []object{link(managers + "/1")}},
	}
}

func manager() object {
	return object{
		"@odata.id":       managers + "/1",
		"@odata.type":     "#Manager.v1_5_0.Manager",
		"Id":              "1",
		"Name":            "Stand-in",
		"ManagerType":     "Service",
		"FirmwareVersion": "1",
		"PowerState":      "On",
		"Status":          object{"State": "Enabled", "Health": "OK"},
	}
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("OData-Version", "4.0")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// writeError answers with an error (DSP0266, 8.6).
func writeError(w http.ResponseWriter, code int, sentence string) {
	writeJSON(w, code, object{"error": object{"code": "Base.1.0.GeneralError", "message": sentence}})
}
