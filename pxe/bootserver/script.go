package bootserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/grub"
	"firstlight.dev/firstlight/pxe/ipxe"
	"firstlight.dev/firstlight/pxe/scripttext"
)

// maxScript is more than any script a conductor writes.
const maxScript = 64 << 10

// loader is a boot program that asks for a script at its path.
type loader struct {
	name     string // in the log
	path     string
	firmware pxe.Firmware
	render   func(base string, mac net.HardwareAddr, boot pxe.Boot) ([]byte, error)

	// size is what each of its scripts is filled up to with blank lines, in bytes; 0: none is. After UEFI HTTP boot GRUB
	// asks for the size by HEAD and reads no more than that, but the token that decides it is made for GET alone.
	size int
}

var loaders = []loader{
	{name: "ipxe", path: pxe.ScriptPath, firmware: pxe.FirmwareIPXE, render: ipxe.Render},
	{name: "grub", path: pxe.GRUBPath, firmware: pxe.FirmwareGRUB, render: grub.Render, size: 8 << 10},
}

// script answers the path of l + id. A machine that has got this far understands
// scripts, not status codes: whatever is wrong is told to it in one, with status 200.
func (s *Server) script(w *body, r *http.Request, caller pxe.Machine, l loader, id string) {
	mac, err := net.ParseMAC(id)
	if err != nil || len(mac) != 6 {
		http.Error(w, "ask for "+l.path+"MAC, e.g. "+l.path+"52-54-00-00-00-01", http.StatusNotFound)
		return
	}

	w.Header().Set("Content-Type", "text/plain; charset=us-ascii")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead && l.size > 0 {
		w.Header().Set("Content-Length", fmt.Sprint(l.size))
		w.WriteHeader(http.StatusOK)
		return
	}

	machine := caller
	if !bytes.Equal(caller.MAC, mac) {
		machine = pxe.Machine{MAC: mac, Addr: caller.Addr}
	}

	machine.Firmware = l.firmware
	boot := placeAddress(s.Booter.Boot(r.Context(), machine), caller.Addr)
	byAnother := s.Machines != nil && !bytes.Equal(caller.MAC, mac)
	note := boottrace.Event{
		MAC:       mac,
		Addr:      caller.Addr,
		Step:      boottrace.StepScript,
		Detail:    boot.Action.String(),
		ByAnother: byAnother,
	}
	var text []byte
	switch {
	case (boot.Token != "" || boot.Mint) && byAnother:
		// The token proves a machine to the services behind: nobody else may read it.
		note.Detail, note.Refused = pxe.ActionRefuse.String(), "a script with a token goes to the machine's own address only"
		text, err = l.render(s.Base, mac, pxe.Boot{Action: pxe.ActionRefuse, Reason: note.Refused})
	case boot.Action == pxe.ActionRefuse || boot.Action == pxe.ActionWait:
		note.Refused = boot.Reason
		text, err = l.render(s.Base, mac, boot)
	case boot.Script != "":
		note.Detail = boot.Script
		text, err = s.finishedScript(r, machine, l, boot)
		if err != nil {
			note.Error = err.Error()
			text, err = l.render(s.Base, mac, pxe.Boot{Action: pxe.ActionWait, Reason: note.Error})
		}
	default:
		if boot, err = s.mint(r, machine, boot); err == nil {
			text, err = l.render(s.Base, mac, boot)
		}
	}

	if l.size > 0 && err == nil && len(text) > l.size {
		err = fmt.Errorf("its script has %d bytes more than %s is given", len(text)-l.size, l.name)
	}
	if err != nil {
		// A fault of whoever filled in Boot. The machine waits with the reason on its screen.
		s.Log.Error(l.name+": script", "mac", mac.String(), "error", err)
		note.Error = err.Error()
		if text, err = l.render(s.Base, mac, pxe.Boot{Action: pxe.ActionWait, Reason: note.Error}); err != nil {
			http.Error(w, "no script can be written", http.StatusInternalServerError)
			return
		}
	}

	s.Record.Add(note)
	s.Metrics.Scripts.WithLabelValues(boot.Action.String()).Inc()
	s.Log.Info(
		l.name+": script", "mac", mac.String(), "client", r.RemoteAddr, "action", boot.Action.String(), "script",
		boot.Script, "refused", note.Refused,
	)
	text = append(text, bytes.Repeat([]byte("\n"), max(0, l.size-len(text)))...)
	w.Header().Set("Content-Length", fmt.Sprint(len(text)))
	w.Header().Set("Connection", "close") // what is loaded next takes its time, and comes by connections of its own
	if r.Method == http.MethodGet {
		_, _ = w.Write(text)
	}
}

// placeAddress is boot with the address of the machine that asks in the arguments that name it.
func placeAddress(boot pxe.Boot, addr netip.Addr) pxe.Boot {
	boot.Args = slices.Clone(boot.Args)
	for i, arg := range boot.Args {
		boot.Args[i] = strings.ReplaceAll(arg, scripttext.AddressPlace, addr.String())
	}
	return boot
}

// mint makes the token of a boot that asks for one. The error is shown to the machine.
func (s *Server) mint(r *http.Request, machine pxe.Machine, boot pxe.Boot) (pxe.Boot, error) {
	switch {
	case !boot.Mint || boot.Action == pxe.ActionDisk:
		return boot, nil
	case s.Minter == nil:
		return boot, errors.New("this server makes no tokens")
	case r.Method != http.MethodGet:
		return boot, errors.New("a script with a token is sent to GET alone") // it would end the token in use
	}

	token, err := s.Minter.Mint(machine, boot)
	if err != nil {
		return boot, fmt.Errorf("no token for its boot: %w", err)
	}

	boot.Token = token
	return boot, nil
}

// finishedScript is a script that somebody else wrote for iPXE, with the token of this boot: as it is, or rendered
// again for another boot program. The error is shown to the machine.
func (s *Server) finishedScript(r *http.Request, machine pxe.Machine, l loader, boot pxe.Boot) ([]byte, error) {
	text, err := s.readScript(boot.Script)
	if err != nil {
		return nil, err
	}
	text = bytes.ReplaceAll(text, []byte(scripttext.AddressPlace), []byte(machine.Addr.String()))
	if boot.Mint && !bytes.Contains(text, []byte(scripttext.TokenPlace)) {
		return nil, errors.New("its script was written by an earlier version, without a place for a token")
	}

	if l.firmware != pxe.FirmwareIPXE {
		if boot.Kernel, boot.Initrd, boot.Args, err = ipxe.ParseKernel(text); err != nil {
			return nil, err
		}
	}
	if boot, err = s.mint(r, machine, boot); err != nil {
		return nil, err
	}

	switch {
	case l.firmware != pxe.FirmwareIPXE:
		return l.render(s.Base, machine.MAC, boot)
	case boot.Token == "":
		return text, nil
	default:
		return bytes.ReplaceAll(text, []byte(scripttext.TokenPlace), []byte(boot.Token.Reveal())), nil
	}
}

// readScript reads a script that somebody else wrote below the HTTP root. The error is
// shown to the machine.
func (s *Server) readScript(name string) ([]byte, error) {
	for _, mount := range s.Mounts {
		if mount.Path != "/" {
			continue
		}

		clean, err := bootfile.CleanName(name)
		if err != nil {
			return nil, err
		}

		file, info, err := bootfile.OpenRegular(mount.Root, clean)
		if err != nil {
			return nil, fmt.Errorf("its script is not written yet: %w", err)
		}
		defer file.Close()

		text, err := io.ReadAll(io.LimitReader(file, maxScript+1))
		switch {
		case err != nil:
			return nil, bootfile.ErrRead
		case len(text) > maxScript:
			return nil, fmt.Errorf("its script is longer than %d bytes", maxScript)
		case !strings.HasPrefix(string(text), "#!ipxe") || int64(len(text)) != info.Size():
			return nil, fmt.Errorf("its script is not complete yet")
		}

		return text, nil
	}
	return nil, fmt.Errorf("this server has no directory for finished scripts")
}
