package bmc

import (
	"context"
	"fmt"

	"firstlight.dev/firstlight/assets/site"
)

// Kept is what becomes of a request for another password: it answers, took the login, and leaves the password as it is.
const Kept Verdict = "kept"

// ChangePassword asks a BMC for another password of the account that b logs in with. It does not wait longer than 40 s.
// A login that is refused is not tried again.
//
//   - OK: the BMC says that it has changed it; a login with the next one shows whether it has.
//   - Kept: it says that it has not, with the reason.
//   - Refused: it takes no login with the present password, and was not asked.
//   - Others: whether it was changed is not known.
func (c Client) ChangePassword(ctx context.Context, b site.BMC, next site.Secret) Answer {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch {
	case b.Address.Scheme() == "ipmi":
		return changeByIPMI(ctx, b, next)
	case b.Address.IsRedfish():
		return c.changeByRedfish(ctx, b, next)
	}

	return unfitScheme(b)
}

// keptAnswer is the answer of a BMC that leaves the password as it is.
func keptAnswer(b site.BMC, why string) Answer {
	return Answer{
		Verdict: Kept,
		Text:    fmt.Sprintf("the BMC %s does not change the password of user %q: %s", addressText(b), b.Username, why),
		Fix:     "change it in the BMC's own set-up, then bmc.password of this node in site.yaml, and run firstlightd reload",
	}
}

func changedAnswer(b site.BMC, protocol string) Answer {
	return Answer{Verdict: OK, Text: fmt.Sprintf("%s has changed the password by %s", addressText(b), protocol)}
}
