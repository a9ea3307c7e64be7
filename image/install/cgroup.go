package install

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/lab/container"
)

// Groups of the unit, which systemd has delegated to it (Delegate=). Where control groups are of version 2 alone, those
// with processes cannot have groups with controllers below them: the unit's own group stays empty.
const (
	supervisorGroup = "supervisor"
	applianceGroup  = "appliance"
	controlGroup    = ".control" // where systemd starts what ExecStopPost= says
)

// cgroupName is what container.EnterCgroups makes the appliance's groups by: below the unit's where systemd owns one
// tree of version 2; one of its own in each tree elsewhere.
func cgroupName() string {
	own := delegatedGroup()
	if own == "" {
		return "firstlight"
	}
	return filepath.Join(own, applianceGroup)
}

// delegatedGroup is the unit's group in the one tree of version 2, without a slash in front; "" on other machines.
func delegatedGroup() string {
	if !exists(container.CgroupRoot + "/cgroup.controllers") {
		return ""
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return parseUnitGroup(string(text))
}

// parseUnitGroup reads the unit's group from /proc/PID/cgroup of a process in it, or in one of those below it.
func parseUnitGroup(text string) string {
	for line := range strings.Lines(text) {
		path, isUnified := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		if !isUnified {
			continue
		}
		switch filepath.Base(path) {
		case supervisorGroup, applianceGroup, controlGroup:
			path = filepath.Dir(path)
		}
		return path
	}
	return ""
}

// enterSupervisorGroup moves this process out of the unit's group, into one below it.
func enterSupervisorGroup() error {
	own := delegatedGroup()
	if own == "" {
		return nil
	}

	dir := filepath.Join(container.CgroupRoot, own, supervisorGroup)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	return nil
}

// checkUnit refuses to do what only the unit does: by hand it would take the interfaces from a running appliance.
func checkUnit() error {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	if !isInUnit(string(text)) {
		return fmt.Errorf("this is a command of the unit alone; use systemctl start %s, or stop", UnitName)
	}
	return nil
}

// isInUnit reports whether /proc/PID/cgroup is that of a process of the unit: systemd has its groups in a tree of that
// name, or in the one of version 2.
func isInUnit(text string) bool {
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 || fields[1] != "name=systemd" && fields[1] != "" {
			continue
		}
		if slices.Contains(strings.Split(fields[2], "/"), UnitName) {
			return true
		}
	}
	return false
}
