package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const (
	machineIDPath = "/etc/machine-id"
	hostnamePath  = "/etc/hostname"
)

// MachineID is the identity this boot runs with, "" while there is none.
func (h *Host) MachineID() string { return readID(h.path(machineIDPath)) }

// IdentityDone holds when the machine-id is the one on DATA and the host name is the
// site's.
func (h *Host) IdentityDone(context.Context) error {
	id, kept := h.MachineID(), readID(h.dataPath(stick.MachineIDName))
	switch {
	case id == "":
		return fmt.Errorf("%s holds no machine-id", machineIDPath)
	case kept == "":
		return fmt.Errorf("the machine-id is not kept in %s", stick.DataDir)
	case kept != id:
		return fmt.Errorf("%s is %s, on DATA it is %s", machineIDPath, id, kept)
	}

	want := hostname(h.rawSite(), id)
	if have := h.Hostname(); have != want {
		return fmt.Errorf("the host name is %q, not %q", have, want)
	}

	return nil
}

// IdentityDo makes what DATA says true, or mints and keeps an identity there.
func (h *Host) IdentityDo(_ context.Context, _ bringup.Report) error {
	id := readID(h.dataPath(stick.MachineIDName))
	if id == "" {
		if id = h.MachineID(); id == "" {
			id = mintID()
		}
		if err := writeFile(h.dataPath(stick.MachineIDName), []byte(id+"\n"), 0o444); err != nil {
			return err
		}
	}

	if h.MachineID() != id {
		if err := writeFile(h.path(machineIDPath), []byte(id+"\n"), 0o444); err != nil {
			return err
		}
	}

	if h.Guest {
		return nil
	}

	name := hostname(h.rawSite(), id)
	if err := writeFile(h.path(hostnamePath), []byte(name+"\n"), 0o644); err != nil {
		return err
	}
	if h.Root != "" {
		return nil
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set host name %s: %w", name, err)
	}

	return nil
}

// Hostname is the name the box has now; of a guest the site's word for the appliance.
func (h *Host) Hostname() string {
	if h.Guest {
		id := h.MachineID()
		if id == "" {
			return ""
		}
		return hostname(h.rawSite(), id)
	}
	if h.Root != "" {
		b, _ := os.ReadFile(h.path(hostnamePath))
		return strings.TrimSpace(string(b))
	}
	name, _ := os.Hostname()
	return name
}

// hostname is the site's word, or one that tells two sticks apart.
func hostname(s *site.Site, id string) string {
	switch {
	case s.Appliance.Hostname != "":
		return s.Appliance.Hostname.String()
	case s.Name != "":
		return s.Name.String()
	default:
		return "firstlight-" + id[:4]
	}
}

// readID is the machine-id in a file, "" if there is none: 32 lower-case hex digits, not
// all zero (machine-id(5)).
func readID(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}

	id := strings.TrimSpace(string(b))
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != 16 || strings.ToLower(id) != id || strings.Trim(id, "0") == "" {
		return ""
	}

	return id
}

// mintID is random, marked as a version 4 UUID as systemd does.
func mintID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return hex.EncodeToString(b[:])
}
