// Package bmc asks a management controller, with one login, whether it answers, takes the
// password and can be used as Ironic will use it. What it answers is told apart: a BMC
// that is dead, one that refuses the password and one that is busy need different hands.
//
// Controllers lock an account after a few wrong passwords. So a login is tried once: never
// with another cipher suite, another method or another packet after a refusal.
package bmc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
)

// Verdict is what became of a login.
type Verdict string

const (
	OK      Verdict = "ok"      // logged in, with the rights that are needed
	Refused Verdict = "refused" // it answers, and refuses user, password or rights
	Silent  Verdict = "silent"  // nothing answers, or not in time
	Busy    Verdict = "busy"    // it answers and has no room for one more session; ask again later
	Unfit   Verdict = "unfit"   // it answers, and something else stands against it
	Changed Verdict = "changed" // what answers has another certificate than the BMC had; it was told nothing
)

// Answer is what was found out. The zero Answer says that nothing was asked yet.
type Answer struct {
	Verdict Verdict
	Text    string // what was found, for people; it holds no password
	Fix     string // what a person can do; "" after OK
	On      bool   // the server has power; meaningful after OK
}

// limit is for one whole conversation. Controllers are slow: seconds per answer are usual.
const limit = 40 * time.Second

// Client asks BMCs. Those that speak TLS are told no password before their certificate was checked.
type Client struct{ Pins *bmctrust.Pins }

// Login asks a BMC once. It does not wait longer than 40 s.
func (c Client) Login(ctx context.Context, b site.BMC) Answer {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch {
	case b.Address.Scheme() == "ipmi":
		return loginIPMI(ctx, b)
	case b.Address.IsRedfish():
		return c.loginRedfish(ctx, b)
	}

	return unfitScheme(b)
}

func unfitScheme(b site.BMC) Answer {
	return Answer{
		Verdict: Unfit,
		Text:    fmt.Sprintf("this appliance does not speak to BMCs by %s://", sanitize(b.Address.Scheme())),
		Fix:     "write redfish://ADDRESS/redfish/v1/Systems/ID or ipmi://ADDRESS",
	}
}

// addressText is the BMC's address as people know it.
func addressText(b site.BMC) string {
	return net.JoinHostPort(b.Address.Host(), fmt.Sprint(b.Address.Port()))
}

// FixRefused is the way out of a refusal.
const FixRefused = "correct bmc.username and bmc.password of this node in site.yaml, or the BMC's own, then run firstlightd reload; until then the password is not tried again, so that the account is not locked"

// fixWait is the way out where a BMC only needs time.
const fixWait = "wait: it is asked again automatically"

// refusedAnswer is the answer after which nobody may try again with the same password.
func refusedAnswer(b site.BMC, why string) Answer {
	return Answer{Verdict: Refused, Text: fmt.Sprintf("the BMC %s refuses %s", addressText(b), why), Fix: FixRefused}
}

// unreachableAnswer says what an error of the network means.
func unreachableAnswer(b site.BMC, protocol string, err error) Answer {
	a := Answer{
		Verdict: Silent,
		Fix:     "check the BMC's cable, its power and its address, and that this appliance has a way to it",
	}
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		a.Text = fmt.Sprintf("the BMC's name %s is not known to this appliance's resolvers", b.Address.Host())
		a.Fix = "write the BMC's address into bmc.address, or correct networks.baremetal.dns"
	case errors.Is(err, syscall.ECONNREFUSED):
		a.Text = fmt.Sprintf(
			"%s is there, but nothing answers %s on port %d", b.Address.Host(), protocol, b.Address.Port(),
		)
		a.Fix = fmt.Sprintf("enable %s in the BMC's own set-up, or correct bmc.address", protocol)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		a.Text = fmt.Sprintf("there is no way to the BMC %s", addressText(b))
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		a.Text = fmt.Sprintf("the BMC %s does not answer", addressText(b))
	default:
		a.Text = fmt.Sprintf("the BMC %s cannot be asked: %s", addressText(b), excerpt.Line(err.Error()))
	}

	return a
}
