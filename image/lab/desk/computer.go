package desk

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
	"firstlight.dev/firstlight/image/lab/process"
	"firstlight.dev/firstlight/image/lab/wire"
)

// computer is a machine of the rack that lives: its QEMU, its cables, its BMC.
type computer struct {
	Computer
	ctx     context.Context // of the supervisor: QEMU ends with it
	dir     string
	machine *lab.Machine
	ports   []*wire.Port
	bmc     *bmc.BMC // of a node
	changed func()   // a process has started

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

// recall reads what was remembered; a new machine is off.
func (c *computer) recall() error {
	err := readJSON(filepath.Join(c.dir, powerFile), &c.power)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (c *computer) remember(p power) error {
	if c.ended || p == c.power {
		return nil
	}
	c.power = p
	return writeJSON(filepath.Join(c.dir, powerFile), p)
}

// On tells whether it has power.
func (c *computer) On() bool { return c.machine.Running() }

// SwitchOn starts it from a device as its BMC names it.
func (c *computer) SwitchOn(device string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.machine.Running() {
		return nil
	}
	c.machine.Change(func(m *lab.Config) { bootFrom(m, device == bmc.BootNetwork) })
	c.paused = false
	if c.failed = c.machine.Start(c.ctx); c.failed != nil {
		return c.failed
	}
	c.changed()
	return c.remember(power{On: true, Device: device})
}

// SwitchOff cuts its power.
func (c *computer) SwitchOff() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = nil
	return errors.Join(c.machine.Kill(), c.remember(power{Device: c.power.Device}))
}

// ShutDown presses the power button; the system may listen to it or not.
func (c *computer) ShutDown() error {
	if !c.machine.Running() {
		return nil
	}
	return c.machine.Power(c.ctx, lab.PowerButton)
}

// press is a button by name, as people and tests press it.
func (c *computer) press(button string) error {
	device := c.power.Device
	if c.bmc != nil {
		device = c.bmc.Device()
	}
	switch button {
	case "on":
		return c.SwitchOn(device)
	case "off":
		return c.SwitchOff()
	case "reset":
		return errors.Join(c.SwitchOff(), c.SwitchOn(device))
	case "button":
		return c.ShutDown()
	case "pause":
		return c.clock(clockStop)
	case "resume":
		return c.clock(clockGo)
	}
	return fmt.Errorf("button %q is not there; on, off, reset, button, pause and resume are", button)
}

// clock stops a machine and its time, or lets both go on: it does not notice. A machine that
// is off has none.
func (c *computer) clock(order string) error {
	if !c.machine.Running() {
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

// stopped tells whether its time stands still, as long as it is on.
func (c *computer) stopped() bool {
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
func (c *computer) noticeEnd() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.machine.Running() || !c.power.On || c.failed != nil || c.ctx.Err() != nil {
		return nil
	}
	if c.failed = c.machine.Failure(); c.failed != nil {
		return fmt.Errorf("%s: %w", c.Name, c.failed)
	}
	return c.remember(power{Device: c.power.Device})
}

// failure is why it is off though it should be on; nil if it is as it should be.
func (c *computer) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// end cuts the power for good. What was on comes up again with the rack.
func (c *computer) end() error {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	var errs []error
	if c.bmc != nil {
		errs = append(errs, c.bmc.Close())
	}
	return errors.Join(append(errs, c.machine.Close())...)
}

// processes are those that belong to it at present.
func (c *computer) processes() []started {
	var all []started
	if pid := c.machine.PID(); pid != 0 {
		if id, err := process.Of(pid); err == nil {
			all = append(all, started{c.Name, id})
		}
	}
	if c.bmc != nil {
		all = append(all, started{"BMC of " + c.Name, c.bmc.Process()})
	}
	return all
}

// cables are its ports and how they are.
func (c *computer) cables() []Cable {
	all := []Cable{}
	for i, p := range c.ports {
		all = append(all, Cable{Network: c.Cards[i].Network, Fault: p.Fault(), Stats: p.Stats()})
	}
	return all
}

func (c *computer) makeDir() error { return os.MkdirAll(c.dir, 0o700) }
