package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// rootModules are those by which the appliance's root is mounted.
var rootModules = []string{"overlay", "squashfs", "loop"}

// modules are the others of the kernel that the appliance cannot ask for itself, and may be part of the kernel: the site
// may name bonds and VLANs, and the rest is what Kubernetes needs.
var modules = []string{
	"bridge", "nf_conntrack", "nf_tables", "veth", "8021q", "bonding", "tun", "fuse",
	bridgeFilter,
}

// bridgeFilter is the module by which what passes a bridge passes the packet filter as well. It is the last: see
// loadModules.
const bridgeFilter = "br_netfilter"

// bridgeSysctls is there while the kernel has bridgeFilter.
const bridgeSysctls = "/proc/sys/net/bridge"

// loadModules has the kernel load the modules; run runs a program, which may fail. bridgeFilter works at once: a packet
// filter that forwards nothing by default, as Docker and ufw set it up, would cut off what is behind this machine's
// bridges, such as virtual machines. Where it was not loaded, they stay as they were. The appliance's network has
// parameters of its own.
func loadModules(bridge string, run func(words ...string)) error {
	wasFiltered := exists(bridge)
	for _, name := range modules {
		run("modprobe", "--quiet", name) // one that is part of the kernel is no file
	}
	if wasFiltered || !exists(bridge) {
		return nil
	}

	for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables"} {
		if err := os.WriteFile(filepath.Join(bridge, name), []byte("0\n"), 0); err != nil {
			return fmt.Errorf("keep this machine's bridges out of its packet filter: %w", err)
		}
	}

	// What its owner has said of them in sysctl.d holds, as whenever the module is loaded.
	run("/lib/systemd/systemd-sysctl", "--prefix=/net/bridge")
	return nil
}

// loadRootModules has the kernel load what the appliance's root is mounted by.
func loadRootModules(run func(words ...string)) {
	for _, name := range rootModules {
		run("modprobe", "--quiet", name)
	}
}

// runUntil runs programs, which may fail, until ctx ends.
func runUntil(ctx context.Context) func(words ...string) {
	return func(words ...string) { _ = exec.CommandContext(ctx, words[0], words[1:]...).Run() }
}

// limits are parameters of the kernel, below /proc/sys, by the least value that the appliance needs. They count what one
// user has, here root of the machine and of the appliance together: containerd alone watches each container by an
// instance of inotify, of which a user has 128 by default. Whoever is too many cannot start, here or there.
var limits = map[string]int{
	"fs/inotify/max_user_instances": 8192, // as on the stick (61-firstlight-kube.conf)
	"fs/inotify/max_user_watches":   524288,
}

// raiseLimits raises those that are lower.
func raiseLimits(sysctls string) error {
	var errs []error
	for name, least := range limits {
		path := filepath.Join(sysctls, name)
		text, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if is, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && is < least {
			errs = append(errs, os.WriteFile(path, []byte(strconv.Itoa(least)), 0))
		}
	}
	return errors.Join(errs...)
}
