package install

import (
	"fmt"
	"os"
	"path/filepath"
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
