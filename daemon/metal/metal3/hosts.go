package metal3

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/pxe"
)

// Hosts is the live picture of all hosts: fed by a watch, asked by package pxe for every
// packet, so it answers from memory.
type Hosts struct {
	Ramdisk Ramdisk
	Files   string // folder below which the conductor writes pxelinux.cfg/MAC
	Backups Backups
	// WithoutBMC is the node of the site that has a MAC and no BMC; "": none. Nil: always none.
	WithoutBMC func(mac string) string
	// BootsSecurely reports whether the site says that a machine with a MAC, which is no host, boots with Secure Boot.
	// Nil: none does.
	BootsSecurely func(mac string) bool
	// Torn reports whether the backup of the node with this MAC cannot be read; nil: none is torn. It is asked for
	// machines without a host alone.
	Torn func(mac net.HardwareAddr) bool
	Log  *slog.Logger

	mu      sync.RWMutex
	current bool
	renewed time.Time // the API last answered for them
	hosts   []metal3api.BareMetalHost
	byMAC   map[string]*metal3api.BareMetalHost
	live    map[string]bool // MACs of recorded hosts in service; until current

	savedVersions map[string]string // by host: the version of it that is in its record; only Set's
}

var _ pxe.Booter = (*Hosts)(nil)

// LoadBackups reads the records, so that hosts in service boot their disks before the API
// answers, and even if it never does.
func (h *Hosts) LoadBackups() error {
	records, err := h.Backups.Read()
	if err != nil {
		return err
	}

	live := map[string]bool{}
	for _, r := range records {
		if r.IsLive() {
			for _, mac := range hostMACs(&r.Host) {
				live[mac] = true
			}
		}
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	h.live = live
	return nil
}

// Set replaces the picture by what the API says now, and keeps the records. A record that
// cannot be written is an error worth stopping for: later it may be all there is.
func (h *Hosts) Set(hosts []metal3api.BareMetalHost) error {
	slices.SortFunc(hosts, func(a, b metal3api.BareMetalHost) int { return strings.Compare(a.Name, b.Name) })
	byMAC, kept := map[string]*metal3api.BareMetalHost{}, map[string]string{}
	var failed error
	for i := range hosts {
		for _, mac := range hostMACs(&hosts[i]) {
			byMAC[mac] = &hosts[i]
		}
		version := string(hosts[i].UID) + "/" + hosts[i].ResourceVersion
		if hosts[i].ResourceVersion != "" && h.savedVersions[hosts[i].Name] == version {
			kept[hosts[i].Name] = version
		} else if err := h.Backups.Save(&hosts[i]); err != nil {
			failed = err
		} else {
			kept[hosts[i].Name] = version
		}
	}

	h.savedVersions = kept
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hosts, h.byMAC, h.current, h.renewed = hosts, byMAC, true, time.Now()
	return failed
}

// Boot answers what a machine boots; see Decide.
func (h *Hosts) Boot(_ context.Context, m pxe.Machine) pxe.Boot {
	mac := m.MAC.String()
	h.mu.RLock()
	v := View{Host: h.byMAC[mac], Current: h.current, Live: h.live[mac]}
	h.mu.RUnlock()
	if v.Host == nil && v.Current && v.Live {
		// The API has lost a host that was in service: it boots its disk while it is restored.
		v.Current = false
	}

	if v.Host == nil && h.WithoutBMC != nil {
		v.Node = h.WithoutBMC(mac)
	}

	v.Torn = v.Host == nil && h.Torn != nil && h.Torn(m.MAC)
	v.Script = h.script(m.MAC)
	b := Decide(v, h.Ramdisk)
	if v.Host != nil {
		b.SecureBoot = BootsSecurely(v.Host)
	} else if h.BootsSecurely != nil {
		b.SecureBoot = h.BootsSecurely(mac)
	}
	return b
}

// script is the conductor's file for a MAC (Ironic's ipxe boot interface writes it when it
// prepares a boot and removes it afterwards).
func (h *Hosts) script(mac net.HardwareAddr) string {
	name := filepath.Join("pxelinux.cfg", strings.ReplaceAll(mac.String(), ":", "-"))
	if info, err := os.Stat(filepath.Join(h.Files, name)); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return filepath.ToSlash(name)
}

// List is a copy of the picture, and whether it was read from the API since the daemon
// started: until then an absent host means nothing.
func (h *Hosts) List() (hosts []metal3api.BareMetalHost, current bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for i := range h.hosts {
		hosts = append(hosts, *h.hosts[i].DeepCopy())
	}

	return hosts, h.current
}

// IsCurrent tells whether the hosts were read from the API since the daemon started.
func (h *Hosts) IsCurrent() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.current
}

// apiTimeout is how long the API may be silent before the picture is called old: a restart of its server is shorter.
const apiTimeout = time.Minute

// SilentSince is since when the API has not answered for the hosts, if that is too long for List to be taken for
// the present; zero if it is not, or if they were never read.
func (h *Hosts) SilentSince(now time.Time) time.Time {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return silentSince(h.renewed, now)
}

func silentSince(renewed, now time.Time) time.Time {
	if renewed.IsZero() || now.Sub(renewed) < apiTimeout {
		return time.Time{}
	}
	return renewed
}

// markAnswered notes that the API was asked just now and answered.
func (h *Hosts) markAnswered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewed = time.Now()
}

// hostMACs are all by which a host is known, lower case: the one it boots from and, once it
// was inspected, every NIC's.
func hostMACs(b *metal3api.BareMetalHost) []string {
	var out []string
	if b.Spec.BootMACAddress != "" {
		out = append(out, strings.ToLower(b.Spec.BootMACAddress))
	}

	if b.Status.HardwareDetails != nil {
		for _, nic := range b.Status.HardwareDetails.NIC {
			if mac := strings.ToLower(nic.MAC); mac != "" && !slices.Contains(out, mac) {
				out = append(out, mac)
			}
		}
	}

	return out
}
