package daemon

import (
	"context"
	"errors"
	"fmt"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/api"
	"firstlight.dev/firstlight/daemon/metal/serialconsole"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
	"firstlight.dev/firstlight/daemon/page"
)

// newConsoles are the serial consoles of the nodes that the daemon knows.
func (d *Daemon) newConsoles() *serialconsole.Consoles {
	return &serialconsole.Consoles{
		Target: d.consoleTarget,
		Open:   d.openConsole,
		Log:    d.log.With("part", "consoles"),
	}
}

// consoleTarget is the BMC of a node.
func (d *Daemon) consoleTarget(node string) (serialconsole.Target, error) {
	for _, n := range d.metal.AllNodes().Nodes {
		switch {
		case string(n.Name) != node:
		case n.BMC == nil:
			return serialconsole.Target{}, &serialconsole.Refusal{
				Text: fmt.Sprintf("node %s has no BMC, and so no console", node),
				Fix:  "give it bmc.address, bmc.username and bmc.password in site.yaml",
			}
		default:
			return serialconsole.Target{BMC: *n.BMC, IsLeaving: d.isLeaving(node)}, nil
		}
	}
	return serialconsole.Target{}, &serialconsole.Refusal{
		Text: fmt.Sprintf("no node is called %q", node),
		Fix:  "firstlightd why lists the nodes",
	}
}

// isLeaving reports whether a node is being deprovisioned or deleted.
func (d *Daemon) isLeaving(node string) bool {
	h := d.metal.Hosts.FindHost(func(h *metal3api.BareMetalHost) bool { return h.Name == node })
	if h == nil {
		return false
	}
	switch h.Status.Provisioning.State {
	case metal3api.StateDeprovisioning, metal3api.StateDeleting, metal3api.StatePoweringOffBeforeDelete:
		return true
	}
	return false
}

// openConsole opens a console. A password that the BMC has refused is not tried again, so that no account is locked.
func (d *Daemon) openConsole(ctx context.Context, node string, b site.BMC) (serialconsole.Line, error) {
	var line serialconsole.Line
	a := d.verifier.Refusals.Ask(node, b, func() (a bmc.Answer) {
		line, a = bmc.Client{Pins: d.metal.Pins}.OpenConsole(ctx, b)
		return a
	})
	if a.Verdict == bmc.OK {
		return line, nil
	}
	return nil, &serialconsole.Refusal{Text: a.Text, Fix: a.Fix}
}

// logInToBMC asks the BMC of a node once. A password that it has refused is not tried again.
func (d *Daemon) logInToBMC(ctx context.Context, node string, b site.BMC) bmc.Answer {
	return d.verifier.Refusals.Ask(node, b, func() bmc.Answer { return bmc.Client{Pins: d.metal.Pins}.Login(ctx, b) })
}

// attachConsole watches a console for the command line.
func (d *Daemon) attachConsole(ctx context.Context, node string) (api.Console, error) {
	return d.consoles.Attach(ctx, node)
}

// watchConsole watches a console for a page.
func (d *Daemon) watchConsole(ctx context.Context, node string) (page.Console, error) {
	r, err := d.consoles.Attach(ctx, node)
	if err != nil {
		return nil, newConsoleEnd(err)
	}
	return pageConsole{r}, nil
}

// pageConsole is a console as the page reads it.
type pageConsole struct{ *serialconsole.Reader }

func (c pageConsole) Next(ctx context.Context) (page.Screen, error) {
	if _, err := c.Reader.Next(ctx); err != nil {
		return page.Screen{}, newConsoleEnd(err)
	}
	return c.Screen(), nil
}

func (c pageConsole) Screen() page.Screen { return page.Screen(c.View()) }

// newConsoleEnd is why a console ended, as the page shows it.
func newConsoleEnd(err error) error {
	var why *serialconsole.Refusal
	if errors.As(err, &why) {
		return &page.ConsoleEnd{Text: why.Text, Fix: why.Fix}
	}
	return err
}

// typeAtConsole types what somebody on a page typed.
func (d *Daemon) typeAtConsole(node string, text []byte) error {
	if err := d.consoles.Type(node, text); err != nil {
		return newConsoleEnd(err)
	}
	return nil
}
