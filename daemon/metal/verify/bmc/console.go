package bmc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/transport"
	"github.com/bougou/go-ipmi/pkg/types"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/site"
)

// lanChannel means, in a request, the channel that it comes by (IPMI 2.0, 6.3).
const lanChannel = types.ChannelNumberSelf

// solInstance is the one console that servers have.
const solInstance = 1

// What BMCs answer to Activate Payload (IPMI 2.0, table 24-2).
const (
	solActiveElsewhere = types.CompletionCode(0x80)
	solDisabled        = types.CompletionCode(0x81)
	solLimit           = types.CompletionCode(0x82)
	solNotEncrypted    = types.CompletionCode(0x83)
)

// Console is the serial console of a server, by IPMI's serial over LAN. It is encrypted.
type Console struct {
	client *client.Client
	end    func() // of its session
	bmc    site.BMC
}

// OpenConsole opens the serial console of a server. With OK there is one, which is to be closed; otherwise the answer
// says why not. It does not wait longer than 40 s, and tries a login once.
//
//   - Busy: another session has the console.
//   - Unfit: the BMC has none that can be opened, or it is switched off.
func (c Client) OpenConsole(ctx context.Context, b site.BMC) (*Console, Answer) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch {
	case b.Address.IsRedfish():
		return nil, Answer{
			Verdict: Unfit,
			Text: fmt.Sprintf("the BMC %s is spoken to by Redfish, which offers the console by other protocols, "+
				"each maker in its own way; this appliance opens consoles of ipmi:// alone", addressText(b)),
			Fix: "open the console on the BMC's own web page or by its SSH",
		}
	case b.Address.Scheme() != "ipmi":
		return nil, unfitScheme(b)
	}

	ipmi, end, refused := openIPMI(ctx, b)
	if refused != nil {
		return nil, *refused
	}
	if err := activateConsole(ctx, ipmi); err != nil {
		end()
		return nil, judgeConsoleError(b, err)
	}

	return &Console{ipmi, end, b}, Answer{Verdict: OK, Text: fmt.Sprintf("%s has opened the console", addressText(b))}
}

var errConsoleOff = errors.New("serial over LAN is switched off")

// activateConsole asks whether there is a console, and opens it.
func activateConsole(ctx context.Context, c *client.Client) error {
	var enabled types.SOLConfigParam_SOLEnable
	switch err := c.GetSOLConfigParamFor(ctx, lanChannel, &enabled); {
	case err == nil && !enabled.EnableSOLPayload:
		return errConsoleOff
	case err != nil:
		if _, answered := types.IsResponseError(err); !answered {
			return err
		}
		// A BMC may have a console, and not say so.
	}

	_, err := c.ActivatePayload(ctx, &transport.ActivatePayloadRequest{
		PayloadType:               types.PayloadTypeSOL,
		PayloadInstance:           solInstance,
		EnableEncryption:          true,
		EnableAuthentication:      true,
		SharedSerialAlertBehavior: transport.SharedSerialAlertBehavior_Defer,
	})
	return err
}

// fixConsole is how serial over LAN is switched on.
const fixConsole = "enable serial over LAN (console redirection) in the BMC's own set-up and for its user, with the bit rate " +
	"of the server's serial port; ipmitool does the first by: sol set enabled true"

func judgeConsoleError(b site.BMC, err error) Answer {
	unfit := func(why, fix string) Answer {
		return Answer{Verdict: Unfit, Text: fmt.Sprintf("the BMC %s opens no console: %s", addressText(b), why), Fix: fix}
	}
	if errors.Is(err, errConsoleOff) {
		return unfit(errConsoleOff.Error(), fixConsole)
	}

	refusal, answered := types.IsResponseError(err)
	if !answered {
		return unreachableAnswer(b, "IPMI over LAN", err)
	}
	switch refusal.CompletionCode() {
	case solActiveElsewhere, solLimit:
		return Answer{
			Verdict: Busy,
			Text:    fmt.Sprintf("another session has the console of the BMC %s, which gives it to one at a time", addressText(b)),
			Fix: "end it there, or wait: one whose program ended is closed by the BMC within a minute or two; " +
				"ipmitool takes it away by: sol deactivate",
		}
	case types.CodeNodeBusy:
		return Answer{Verdict: Busy, Text: fmt.Sprintf("the BMC %s is busy", addressText(b)), Fix: "try again"}
	case solDisabled, types.CodeInvalidCommand, types.CodeSubFnDisabled, types.CodeNotSupported:
		return unfit("it says that serial over LAN is switched off, or that it has none", fixConsole)
	case solNotEncrypted:
		return unfit("it gives it without encryption alone", "enable encryption of serial over LAN in the BMC's own set-up")
	case types.CodeInsufficientPrivilege:
		return unfit(fmt.Sprintf("user %q may not use serial over LAN", b.Username), fixConsole)
	}
	return unfit(excerpt.Line(refusal.Error()), fixConsole)
}

// Run passes input to the server and what it prints to output, until ctx ends, input does, or the BMC ends it; the error
// is for people. It is called once.
func (c *Console) Run(ctx context.Context, input io.Reader, output io.Writer) error {
	s := stream{output: output, exchange: func(
		ctx context.Context, p types.SOLPayloadPacket, wait time.Duration,
	) (types.SOLPayloadPacket, error) {
		got, err := c.client.WithTimeout(wait).WithRetry(0).SOLPayload(ctx, &types.SOLPayloadRequest{SOLPayloadPacket: p})
		if err != nil {
			return types.SOLPayloadPacket{}, err
		}
		return got.SOLPayloadPacket, nil
	}}
	err := s.run(ctx, input)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the BMC %s ended the console: %s", addressText(c.bmc), excerpt.Line(err.Error()))
}

// Close gives the console back, and ends its session.
func (c *Console) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	_, _ = c.client.WithTimeout(time.Second).DeactivatePayload(ctx, &transport.DeactivatePayloadRequest{
		PayloadType:     types.PayloadTypeSOL,
		PayloadInstance: solInstance,
	}) // ends with the session at the latest
	c.end()
}
