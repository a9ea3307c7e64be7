package virtualrack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lab/bmc"
	"firstlight.dev/firstlight/image/lab/endpoint"
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/vswitch"
)

// machine is a machine of the rack that lives: its QEMU, its cables, its BMC.
type machine struct {
	MachineSpec
	ctx     context.Context // of the supervisor: QEMU ends with it
	dir     string
	machine *lab.Machine
	ports   []*vswitch.Port
	bmc     controller         // of a node
	ipmi    *bmc.BMC           // the same, if it speaks IPMI
	leasing *endpoint.Endpoint // where its BMC leases an address; nil: it has one of the workstation's
	changed func()             // a process has started

	mu     sync.Mutex // power is switched by one at a time
	power  power
	ended  bool  // nothing is started any more
	paused bool  // by clock
	failed error // why it is off though it should be on; nil: it is as it should be
}

// power is what a server remembers through a power cut: whether to come up again, and what from.
type power struct {
	On     bool   `json:"on"`
	Device string `json:"device,omitempty"`
}

const powerFile = "power.json"

// loadPower reads what was remembered; a new machine is off.
func (c *machine) loadPower() error {
	err := readJSON(filepath.Join(c.dir, powerFile), &c.power)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (c *machine) savePower(p power) error {
	if c.ended || p == c.power {
		return nil
	}
	c.power = p
	return writeJSON(filepath.Join(c.dir, powerFile), p)
}

// IsOn tells whether it has power.
func (c *machine) IsOn() bool { return c.machine.IsRunning() }

// SwitchOn starts it from a device as its BMC names it.
func (c *machine) SwitchOn(device string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.machine.IsRunning() {
		return nil
	}

	c.machine.Reconfigure(func(m *lab.Config) { m.BootFrom(lab.BootDevice(device)) })
	c.paused = false
	if c.failed = c.machine.Start(c.ctx); c.failed != nil {
		return c.failed
	}

	c.changed()
	return errors.Join(c.savePower(power{On: true, Device: device}), c.setLinks())
}

// SwitchOff cuts its power.
func (c *machine) SwitchOff() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = nil
	return errors.Join(c.machine.Kill(), c.savePower(power{Device: c.power.Device}))
}

// ShutDown presses the power button; the system may listen to it or not.
func (c *machine) ShutDown() error {
	if !c.machine.IsRunning() {
		return nil
	}
	return c.machine.PressPowerButton(c.ctx)
}

// powerOn switches it on, from what its BMC was told.
func (c *machine) powerOn() error {
	if c.bmc == nil {
		return c.SwitchOn(c.power.Device)
	}
	return c.bmc.PowerOn()
}

// Insert puts a disc into its drive, which nodes with Redfish have; "" empties it.
func (c *machine) Insert(file string) error { return c.machine.Insert(c.ctx, file) }

// press is a button by name, as people and tests press it.
func (c *machine) press(button string) error {
	switch button {
	case "on":
		return c.powerOn()
	case "off":
		return c.SwitchOff()
	case "reset":
		return errors.Join(c.SwitchOff(), c.powerOn())
	case "button":
		return c.ShutDown()
	case "pause":
		return c.setPaused(clockStop)
	case "resume":
		return c.setPaused(clockGo)
	}

	return fmt.Errorf("button %q is not there; on, off, reset, button, pause and resume are", button)
}

// setPaused stops a machine and its time, or lets both go on: it does not notice. A machine that
// is off has none.
func (c *machine) setPaused(order string) error {
	if !c.machine.IsRunning() {
		return nil
	}

	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	q, err := c.machine.QMP(ctx)
	if err != nil {
		return err
	}
	defer q.Close()

	if err := q.Execute(ctx, order, nil, nil); err != nil {
		return err
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = order == clockStop
	return nil
}

// isPaused tells whether its time stands still, as long as it is on.
func (c *machine) isPaused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused
}

// Orders of QMP to a machine's clock.
const (
	clockStop = "stop"
	clockGo   = "cont"
)

// noticeEnd remembers that the system has switched itself off. If it was QEMU that ended, that is
// an error, once; the machine is remembered as on, and the rack's next start starts it again.
func (c *machine) noticeEnd() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machine.IsRunning() || !c.power.On || c.failed != nil || c.ctx.Err() != nil {
		return nil
	}
	if c.failed = c.machine.Failure(); c.failed != nil {
		return fmt.Errorf("%s: %w", c.Name, c.failed)
	}

	return c.savePower(power{Device: c.power.Device})
}

// failure is why it is off though it should be on; nil if it is as it should be.
func (c *machine) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// cutPower cuts the power for good. What was on comes up again with the rack.
func (c *machine) cutPower() error {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	var errs []error
	if c.bmc != nil {
		errs = append(errs, c.bmc.Close())
	}

	if c.leasing != nil {
		errs = append(errs, c.leasing.Close())
	}

	return errors.Join(append(errs, c.machine.Close())...)
}

// processes are those that belong to it at present.
func (c *machine) processes() []startedProcess {
	var all []startedProcess
	if pid := c.machine.PID(); pid != 0 {
		if id, err := process.Identify(pid); err == nil {
			all = append(all, startedProcess{c.Name, id})
		}
	}

	if c.ipmi != nil {
		all = append(all, startedProcess{"BMC of " + c.Name, c.ipmi.Process()})
	}

	return all
}

func (c *machine) makeDir() error { return os.MkdirAll(c.dir, 0o700) }
