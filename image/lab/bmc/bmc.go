// Package bmc gives a machine of the lab its management controller. IPMI is spoken by
// OpenIPMI's ipmi_sim, so that Ironic meets what it meets at a real server; the buttons act
// on whatever Machine is behind it.
package bmc

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/freeport"
	"firstlight.dev/firstlight/image/lab/process"
)

// Machine is what the buttons act on. Calls come one at a time.
type Machine interface {
	IsOn() bool
	SwitchOn(device string) error // and boot from the device that the BMC was told last
	SwitchOff() error             // cuts the power
	ShutDown() error              // asks the system to end; may return before it has
}

// Devices of "chassis bootdev" as ipmi_sim names them.
const (
	BootNone    = "none" // as the firmware likes: the disk first
	BootNetwork = "pxe"
	BootMedia   = "cdrom" // BMCs of package redfish have a disc for it
)

// Config describes one BMC.
type Config struct {
	Name     string // of the server
	Dir      string // for its files; made if absent
	User     string
	Password string
	Serial   string         // of the server, in its inventory (FRU); "": it has no inventory
	Console  string         // HOST:PORT of its serial port, by TCP, which serial over LAN passes on; "": it has none
	Device   string         // it boots from; "": BootNone
	Front    net.PacketConn // where it is asked; closed with the BMC
	Inside   netip.Addr     // what the system inside is told is the BMC's address (Args), until SetInside; invalid: it sees no BMC
	Changed  func(device string)
	Report   func(error) // an order that the machine did not follow; nil: only whoever gave it is told
}

// BMC is a controller that answers.
type BMC struct {
	config  Config
	machine Machine
	child   *process.Child
	server  *http.Server
	relay   *relay

	mu     sync.Mutex
	device string
	writes []string
	inside int // port at which the machine's own interface to the BMC is answered; 0: none
}

// simulated is ipmi_sim's configuration (ipmi_lan(5)): one BMC, one user, buttons that are a
// program.
const simulated = `name %q
set_working_mc 0x20
%s  startlan 1
    addr 127.0.0.1 %d
%s    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
%s  chassis_control %q
  user 1 true "" "" user 10 none md2 md5 straight
  user 2 true %q %q admin 10 none md2 md5 straight
`

// consoleConfig has serial over LAN pass on what is at an address; "": there is none.
func consoleConfig(address string) string {
	if address == "" {
		return ""
	}
	return fmt.Sprintf("  sol %q 115200\n", "tcp:"+address)
}

// controller is what the simulator emulates (ipmi_sim_cmd(5)): a management controller and
// an event log.
const controller = `mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
%smc_enable 0x20
`

// Program is the simulator, of Debian's package openipmi.
const Program = "ipmi_sim"

// Start makes the BMC answer.
func Start(c Config, m Machine) (*BMC, error) {
	if c.Device == "" {
		c.Device = BootNone
	}

	b := &BMC{config: c, machine: m, device: c.Device}
	if err := b.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start BMC of %s: %w", c.Name, err), b.Close())
	}

	return b, nil
}

func (b *BMC) start() error {
	dir, err := filepath.Abs(b.config.Dir)
	if err != nil {
		return err
	}
	// The simulator keeps its users there, and they would win over those given.
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, "state")), os.MkdirAll(dir, 0o755)); err != nil {
		return err
	}

	port, err := freeport.FindUDP()
	if err != nil {
		return err
	}

	script := fmt.Sprintf(
		"#!/bin/sh\ncd '%s' && exec curl -sf --unix-socket buttons --data-urlencode \"do=$*\" http://bmc/\n", dir,
	)
	system, lan, err := b.insideConfig(dir)
	if err != nil {
		return err
	}
	inventory, command := inventoryConfig(b.config.Serial, dir)
	for name, text := range map[string]string{
		"chassis":     script,
		"sim.emu":     fmt.Sprintf(controller, command),
		inventoryFile: inventory,
		addressFile:   b.config.Inside.String() + "\n",
		"lan":         fmt.Sprintf(lanProgram, filepath.Join(dir, addressFile)),
		"lan.conf": fmt.Sprintf(simulated, b.config.Name, system, port, lan, consoleConfig(b.config.Console),
			filepath.Join(dir, "chassis"), b.config.User, b.config.Password),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			return err
		}
	}

	if err := b.listen(dir); err != nil {
		return err
	}

	log, err := os.OpenFile(filepath.Join(dir, "bmc.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()

	cmd := exec.Command(
		Program, "-n", "-c", filepath.Join(dir, "lan.conf"), "-f", filepath.Join(dir, "sim.emu"), "-s",
		filepath.Join(dir, "state"),
	)
	cmd.Stdout, cmd.Stderr = log, log
	if b.child, err = process.Start(cmd); err != nil {
		return err
	}

	b.relay = &relay{front: b.config.Front, back: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}}
	go b.relay.run()
	return nil
}

// listen answers the simulator's chassis program.
func (b *BMC) listen(dir string) error {
	path := filepath.Join(dir, "buttons")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	// The name of a socket is at most 107 bytes; that of a directory's descriptor is short.
	at, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer at.Close()

	listener, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/buttons", at.Fd()))
	if err != nil {
		return err
	}

	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	b.server = &http.Server{Handler: http.HandlerFunc(b.serveChassis), ReadHeaderTimeout: time.Minute}
	go func() { _ = b.server.Serve(listener) }() // until it is closed
	return nil
}

// serveChassis answers one call of the chassis program (ipmi_lan(5), chassis_control): "get power
// boot", "set power 1", "check power".
func (b *BMC) serveChassis(w http.ResponseWriter, r *http.Request) {
	words := strings.Fields(r.FormValue("do"))
	if len(words) == 0 {
		http.Error(w, "nothing said", http.StatusBadRequest)
		return
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	switch op, words := words[0], words[1:]; op {
	case "get":
		for _, what := range words {
			switch what {
			case "power":
				fmt.Fprintf(w, "power:%d\n", map[bool]int{true: 1}[b.machine.IsOn()])
			case "boot":
				fmt.Fprintf(w, "boot:%s\n", b.device)
			}
		}
	case "set":
		for i := 0; i+1 < len(words); i += 2 {
			b.writes = append(b.writes, words[i]+" "+words[i+1])
			if err := b.set(words[i], words[i+1]); err != nil {
				if b.config.Report != nil { // who gave it learns of a failure, not of a reason
					b.config.Report(fmt.Errorf("BMC of %s: %s %s: %w", b.config.Name, words[i], words[i+1], err))
				}
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
	}
}

func (b *BMC) set(what, value string) error {
	switch what {
	case "power":
		if value == "1" {
			return b.machine.SwitchOn(b.device)
		}
		return b.machine.SwitchOff()
	case "shutdown":
		return b.machine.ShutDown()
	case "reset":
		if err := b.machine.SwitchOff(); err != nil {
			return err
		}
		return b.machine.SwitchOn(b.device)
	case "boot":
		b.device = value
		if b.config.Changed != nil {
			b.config.Changed(value)
		}
	}
	return nil
}

// Device is what the machine boots from next.
func (b *BMC) Device() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.device
}

// Writes is every order the BMC was given, oldest first: "power 1", "boot pxe".
func (b *BMC) Writes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.writes...)
}

// Press does what a person at the server's front would, in line with what the BMC is told.
func (b *BMC) Press(what, value string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.set(what, value)
}

// PowerOn does what the button at the server's front does.
func (b *BMC) PowerOn() error { return b.Press("power", "1") }

// Process is the simulator's.
func (b *BMC) Process() process.ID { return b.child.ID }

// IsRunning tells whether the simulator has not ended by itself.
func (b *BMC) IsRunning() bool { return b.child.IsRunning() }

// Close ends the BMC, not the machine.
func (b *BMC) Close() error {
	var err error
	if b.child != nil {
		b.child.Kill()
	}

	if b.server != nil {
		err = b.server.Close()
	}

	if e := b.config.Front.Close(); !errors.Is(e, net.ErrClosed) {
		err = errors.Join(err, e)
	}

	return err
}
