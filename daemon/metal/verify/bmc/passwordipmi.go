package bmc

import (
	"context"
	"errors"
	"fmt"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/types"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/site"
)

// maxIPMIPassword is what every BMC stores of a password; one of 20 bytes is not known to IPMI 1.5 (IPMI 2.0, 22.30).
const maxIPMIPassword = 16

// changeByIPMI finds the user by its name and sets its password (IPMI 2.0, 22.29 and 22.30), within one encrypted
// session. The password is in no command line: no other program is run.
func changeByIPMI(ctx context.Context, b site.BMC, next site.Secret) Answer {
	if len(next.Reveal()) > maxIPMIPassword {
		return keptAnswer(b, fmt.Sprintf("IPMI stores %d bytes of a password", maxIPMIPassword))
	}

	c, closeSession, refused := openIPMI(ctx, b)
	if refused != nil {
		return *refused
	}
	defer closeSession()

	id, err := findIPMIUser(ctx, c, b.Username)
	if err != nil {
		return judgeIPMIChange(b, err)
	}
	if _, err := c.SetUserPassword(ctx, id, next.Reveal(), false); err != nil {
		return judgeIPMIChange(b, err)
	}

	return changedAnswer(b, "IPMI")
}

var (
	errNoUser    = errors.New("it lists no user of that name")
	errSameUsers = errors.New("it lists two users of that name")
)

// findIPMIUser is the ID of a user. A slot without a name is answered by an error.
func findIPMIUser(ctx context.Context, c *client.Client, name string) (id uint8, err error) {
	access, err := c.GetUserAccess(ctx, types.ChannelNumberSelf, 1)
	if err != nil {
		return 0, err
	}

	for slot := uint8(1); slot <= access.MaxUsersIDCount; slot++ {
		var user *app.GetUsernameResponse
		user, err = c.GetUsername(ctx, slot)
		if _, answered := types.IsResponseError(err); answered {
			continue
		}
		switch {
		case err != nil:
			return 0, err
		case user.Username != name:
		case id != 0:
			return 0, errSameUsers
		default:
			id = slot
		}
	}

	if id == 0 {
		return 0, errNoUser
	}
	return id, nil
}

// judgeIPMIChange says what an error within the session means: a completion code is the BMC's no.
func judgeIPMIChange(b site.BMC, err error) Answer {
	if refusal, ok := types.IsResponseError(err); ok {
		if refusal.CompletionCode() == types.CodeNodeBusy {
			return Answer{Verdict: Busy, Text: fmt.Sprintf("the BMC %s is busy", addressText(b)), Fix: fixWait}
		}
		return keptAnswer(b, excerpt.Line(refusal.Error()))
	}
	if errors.Is(err, errNoUser) || errors.Is(err, errSameUsers) {
		return keptAnswer(b, err.Error())
	}
	return unreachableAnswer(b, "IPMI over LAN", err)
}
