package bmc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/types"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/site"
)

// cipherSuites are the cipher suites of IPMI 2.0 in the order in which Ironic tries them: SHA-1,
// which every BMC knows, and SHA-256, which some want instead. A proposal is no login.
func cipherSuites() []types.CipherSuiteID {
	return []types.CipherSuiteID{types.CipherSuiteID3, types.CipherSuiteID17}
}

// loginIPMI opens a session, asks for the power and closes it.
func loginIPMI(ctx context.Context, b site.BMC) Answer {
	c, closeSession, refused := openIPMI(ctx, b)
	if refused != nil {
		return *refused
	}
	defer closeSession()

	chassis, err := c.GetChassisStatus(ctx)
	if err != nil {
		return judgeIPMIError(b, err)
	}

	return Answer{
		Verdict: OK,
		Text:    fmt.Sprintf("%s takes the password by IPMI", addressText(b)),
		On:      chassis.PowerIsOn,
	}
}

// openIPMI opens one RMCP+ session as administrator (IPMI 2.0, 13.15 to 13.24). A wrong password shows in the BMC's second
// message, which is made with it: the third, by which BMCs count wrong logins, is then never sent. refused is nil if
// there is a session.
func openIPMI(ctx context.Context, b site.BMC) (c *client.Client, closeSession func(), refused *Answer) {
	c, err := client.NewClient(bracket(b.Address.Host()), b.Address.Port(), b.Username, b.Password.Reveal())
	if err != nil {
		return nil, nil, &Answer{
			Verdict: Unfit,
			Text:    excerpt.Line(err.Error()),
			Fix:     "correct bmc.username of this node in site.yaml: IPMI knows 16 characters",
		}
	}

	c = c.WithTimeout(4 * time.Second).WithMaxPrivilegeLevel(types.PrivilegeLevelAdministrator)
	closeSession = func() {
		// Also closes what is half open; a BMC has few sessions.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = c.WithTimeout(time.Second).WithRetry(0).Close(closing)
	}
	if refused = logInByIPMI(ctx, c, b); refused != nil {
		closeSession()
		return nil, nil, refused
	}

	return c, closeSession, nil
}

func logInByIPMI(ctx context.Context, c *client.Client, b site.BMC) (refused *Answer) {
	judge := func(err error) *Answer {
		a := judgeIPMIError(b, err)
		return &a
	}

	var err error
	for _, suite := range cipherSuites() {
		// UDP loses packets: a proposal may be repeated, a login may not.
		if _, err = c.WithCipherSuiteID(suite).WithRetry(2).OpenSession(ctx); err == nil {
			break
		}
		if !isSuiteMismatch(err) {
			return judge(err)
		}
	}

	if err != nil {
		return judge(err)
	}

	c.WithRetry(0)
	if _, err := c.RAKPMessage1(ctx); err != nil {
		return judge(err)
	}
	if _, err := c.RAKPMessage3(ctx); err != nil {
		return judge(err)
	}

	c.WithRetry(2)
	if _, err := c.SetSessionPrivilegeLevel(ctx, types.PrivilegeLevelAdministrator); err != nil {
		a := refusedAnswer(b, fmt.Sprintf("user %q the rights of an administrator (%s)", b.Username, excerpt.Line(err.Error())))
		return &a
	}

	return nil
}

// isSuiteMismatch tells whether the BMC only dislikes the cipher suite.
func isSuiteMismatch(err error) bool {
	switch statusCode(err) {
	case types.RmcpStatusCodeInvalidAuthAlg, types.RmcpStatusCodeInvalidIntegrityAlg, types.RmcpStatusCodeInvalidConfidentAlg,
		types.RmcpStatusCodeNoMatchingAuthPayload, types.RmcpStatusCodeNoMatchingIntegrityPayload, types.RmcpStatusCodeNoCipherSuiteMatch:
		return true
	}
	return false
}

func statusCode(err error) types.RmcpStatusCode {
	var status *types.RmcpStatusError
	if errors.As(err, &status) {
		return status.StatusCode()
	}
	return types.RmcpStatusCodeNoErrors
}

// judgeIPMIError says what an error of the session's set-up means (IPMI 2.0, table 13-15).
func judgeIPMIError(b site.BMC, err error) Answer {
	switch statusCode(err) {
	case types.RmcpStatusCodeNoErrors:
	case types.RmcpStatusCodeUnauthorizedName, types.RmcpStatusCodeInvalidNameLength:
		return refusedAnswer(
			b, fmt.Sprintf("user %q: it has no such user, or that one may not log in over the network", b.Username),
		)
	case types.RmcpStatusCodeUnauthorizedRoleOfPriLevel, types.RmcpStatusCodeInvalidRole:
		return refusedAnswer(b, fmt.Sprintf("user %q the rights of an administrator", b.Username))
	case types.RmcpStatusCodeInvalidIntegrityCheckValue:
		return refusedAnswer(b, fmt.Sprintf("the password of user %q", b.Username))
	case types.RmcpStatusCodeNoResToCreateSess, types.RmcpStatusCodeNoResToCreateSessAtRole:
		return Answer{Verdict: Busy, Text: fmt.Sprintf("the BMC %s has no room for one more session", addressText(b)),
			Fix: "end other sessions of this BMC; it is asked again automatically"}
	default:
		a := Answer{
			Verdict: Unfit,
			Text:    fmt.Sprintf("the BMC %s does not open a session: %s", addressText(b), excerpt.Line(err.Error())),
			Fix:     "look into the BMC's own set-up, or restart the BMC",
		}
		if isSuiteMismatch(err) {
			a.Text = fmt.Sprintf("the BMC %s knows neither cipher suite 3 nor 17 of IPMI 2.0", addressText(b))
			a.Fix = "enable cipher suite 17 (or 3) in the BMC's set-up"
		}
		return a
	}
	if errors.Is(err, client.ErrRAKPAuthentication) {
		return refusedAnswer(b, fmt.Sprintf("the password of user %q", b.Username))
	}
	return unreachableAnswer(b, "IPMI over LAN", err)
}
