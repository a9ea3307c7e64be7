package virtualrack

import (
	"context"
	"errors"
	"fmt"
	"time"

	"firstlight.dev/firstlight/image/lab/vswitch"
)

// Cables are some of a machine's; the zero value is all of them.
type Cables struct {
	Network string // only those to it; "": to any
	Card    int    // of those, only that of this card, from 1; 0: of any
}

func (c Cables) String() string {
	text := "at all"
	if c.Network != "" {
		text = "to network " + c.Network
	}
	if c.Card != 0 {
		text += fmt.Sprintf(" with number %d", c.Card)
	}
	return text
}

// findCards are the cards that cables lead to, by their places in the list.
func (c MachineSpec) findCards(which Cables) []int {
	var all []int
	for i, card := range c.Cards {
		if which.Network == "" || card.Network == which.Network {
			all = append(all, i)
		}
	}

	switch {
	case which.Card == 0:
		return all
	case which.Card < 0 || which.Card > len(all):
		return nil
	}
	return all[which.Card-1 : which.Card]
}

// setFault changes what is wrong with the cable of a card.
func (c *machine) setFault(card int, f vswitch.Fault) error {
	wasOut := c.ports[card].Fault().Out
	c.ports[card].SetFault(f)
	if f.Out == wasOut || !c.machine.IsRunning() {
		return nil
	}
	return c.setLink(card)
}

// setLinks has a machine that was started see which of its cables are out.
func (c *machine) setLinks() error {
	var errs []error
	for i, p := range c.ports {
		if p.Fault().Out {
			errs = append(errs, c.setLink(i))
		}
	}
	return errors.Join(errs...)
}

func (c *machine) setLink(card int) error {
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	return c.machine.SetLink(ctx, card, !c.ports[card].Fault().Out)
}

// cables are its ports and how they are.
func (c *machine) cables() []Cable {
	all := []Cable{}
	for i, p := range c.ports {
		all = append(all, Cable{Network: c.Cards[i].Network, Fault: p.Fault(), Stats: p.Stats()})
	}
	return all
}
