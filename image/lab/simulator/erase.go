package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// eraseStep is the cleaning step of the appliance's own ramdisk (overlays/ramdisk, firstlight_eraser.py).
const eraseStep = "erase_disks"

// diskName is a disk in the arguments of that step.
type diskName struct {
	Name   string `json:"name"`
	Serial string `json:"serial"`
	WWN    string `json:"wwn"`
}

func eraseStepObject() object {
	step := stepObject(eraseStep, 0)
	step["argsinfo"] = object{"disks": object{"description": "objects with name, serial and wwn", "required": true}}
	return step
}

// eraseNamed erases disks as the ramdisk's own hardware manager does: all are found before one is written to, and the
// appliance is asked before each, and told afterwards.
func (a *agent) eraseNamed(ctx context.Context, named []diskName) *agentError {
	var chosen []Disk
	for _, n := range named {
		d, err := findNamed(a.server.Disks(), n)
		if err != nil {
			return err
		}
		chosen = append(chosen, d)
	}

	for _, d := range chosen {
		disk := object{"name": d.Name, "serial": d.Serial, "wwn": d.WWN}
		question := object{"disk": disk, "holds": d.report(), "bytes": d.Size, "others": len(a.server.Disks()) - 1}
		if err := a.askGate(ctx, "/erase", question); err != nil {
			return err
		}

		a.server.beginWrite(d.Name)
		if a.server.currentFaults().BadDisk {
			return cleaningError("Unable to erase block device " + d.Name + ": device is unsupported.")
		}
		if !sleep(ctx, a.server.simulator.config.WorkTime) {
			return cleaningError("switched off")
		}

		method := a.server.finishErase(d.Name)
		done := object{"disk": disk, "holds": object{"kinds": []string{}}, "method": method, "compared": 512}
		if err := a.askGate(ctx, "/erased", done); err != nil {
			return err
		}
	}
	return nil
}

// findNamed is the one disk that has the serial number and the WWN of a name; its name, if it has neither.
func findNamed(disks []Disk, n diskName) (Disk, *agentError) {
	var fit []Disk
	for _, d := range disks {
		hasNumbers := d.Serial == n.Serial && d.WWN == n.WWN
		if n.Serial == "" && n.WWN == "" {
			hasNumbers = d.Name == n.Name
		}
		if hasNumbers {
			fit = append(fit, d)
		}
	}
	if len(fit) != 1 {
		return Disk{}, cleaningError(fmt.Sprintf("%d disks have the serial number %q and the WWN %q", len(fit), n.Serial,
			n.WWN))
	}
	return fit[0], nil
}

// wwn is a disk's, as the agent tells it.
func (d Disk) wwn() any {
	if d.WWN == "" {
		return nil
	}
	return d.WWN
}

func cleaningError(details string) *agentError {
	return &agentError{"CleaningError", http.StatusInternalServerError, "Clean step failed", details}
}

// askGate asks the appliance until it answers, as the ramdisk's own hardware managers do.
func (a *agent) askGate(ctx context.Context, path string, question object) *agentError {
	for {
		code, body, err := a.call(ctx, http.MethodPost, a.api+path, "", question)
		if err == nil && code == http.StatusNoContent {
			return nil
		}
		if err == nil && code < http.StatusInternalServerError {
			var said struct {
				Error struct{ Faultstring string } `json:"error_message"`
			}
			_ = json.Unmarshal(body, &said)
			return cleaningError(said.Error.Faultstring)
		}
		if !sleep(ctx, a.server.simulator.config.WorkTime) {
			return cleaningError("switched off")
		}
	}
}

// finishErase is the end of erasing a disk; it says how that was done.
func (h *Server) finishErase(disk string) (method string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.disks {
		if d := &h.disks[i]; d.Name == disk {
			method = map[string]string{"nvme": "nvme-format", "ata": "ata-secure-erase", "": "overwrite"}[d.Media]
			d.Holds, d.HostKey, d.Erased = nil, "", append(slices.Clone(d.Erased), method)
		}
	}
	return method
}
