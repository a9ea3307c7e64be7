package bmc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"firstlight.dev/firstlight/assets/site"
)

// Bounds of what a BMC is asked for: each account is a request, and a BMC takes a second for it.
const (
	maxAccounts     = 64
	maxAccountPages = 8
)

// kept is why a BMC does not change a password, in its own words or in ours.
type kept string

func (k kept) Error() string { return string(k) }

// badStatus is an answer that says nothing of the password.
type badStatus struct {
	reply
	path string
}

func (e badStatus) Error() string { return fmt.Sprintf("%s answers %d", e.path, e.status) }

// errUnclear is of a BMC that took the login until it was asked: it may have changed the password before it answered.
var errUnclear = errors.New("says 401 to a change of the password, after it had taken the present one")

// accountClient asks one BMC about its accounts.
type accountClient struct {
	http   *http.Client
	system *url.URL
	bmc    site.BMC
}

// changeByRedfish finds the account by its user name, and patches its password (DSP0266, 7.6 and 13.3; schema
// ManagerAccount). Of an account that says its ETag it is patched only if nobody else did meanwhile: some BMCs take no
// PATCH without.
func (client Client) changeByRedfish(ctx context.Context, b site.BMC, next site.Secret) Answer {
	system, err := systemURL(b)
	if err != nil {
		return keptAnswer(b, "bmc.address cannot be read")
	}

	a := accountClient{http: client.http(b), system: system, bmc: b}
	defer a.http.CloseIdleConnections()
	path, etag, err := a.find(ctx)
	if err == nil {
		err = a.patch(ctx, path, etag, next)
	}

	var no kept
	var bad badStatus
	switch {
	case err == nil:
		return changedAnswer(b, "Redfish")
	case errors.As(err, &no):
		return keptAnswer(b, sanitize(hide(string(no), next, b.Password)))
	case errors.Is(err, errUnclear):
		return Answer{Verdict: Unfit, Text: fmt.Sprintf("the BMC %s %v", addressText(b), err), Fix: fixWait}
	case errors.As(err, &bad):
		return judgeStatus(b, bad.reply, bad.path)
	}
	return judgeTransportError(b, err)
}

// find returns the path of the account, and its ETag; "" if it has none.
func (a accountClient) find(ctx context.Context) (path, etag string, err error) {
	type link struct {
		Path string `json:"@odata.id"`
	}
	var root struct{ AccountService link }
	if _, err := a.get(ctx, "/redfish/v1/", &root); err != nil {
		return "", "", err
	}
	if root.AccountService.Path == "" {
		return "", "", kept("it has no AccountService")
	}

	var service struct{ Accounts link }
	if _, err := a.get(ctx, root.AccountService.Path, &service); err != nil {
		return "", "", err
	}

	asked := 0
	page := service.Accounts.Path
	for range maxAccountPages {
		if page == "" {
			break
		}

		var list struct {
			Members []link
			Next    string `json:"Members@odata.nextLink"`
		}
		if _, err := a.get(ctx, page, &list); err != nil {
			return "", "", err
		}
		for _, member := range list.Members {
			if asked++; asked > maxAccounts {
				break
			}

			var account struct {
				UserName string
				ETag     string `json:"@odata.etag"`
			}
			r, err := a.get(ctx, member.Path, &account)
			if err != nil {
				return "", "", err
			}
			if account.UserName == a.bmc.Username {
				if r.etag == "" {
					r.etag = account.ETag
				}
				return member.Path, r.etag, nil
			}
		}
		page = list.Next
	}

	return "", "", kept("it lists no account of that name")
}

// patch asks for another password.
func (a accountClient) patch(ctx context.Context, path, etag string, next site.Secret) error {
	target, err := a.resolve(path)
	if err != nil {
		return err
	}

	body, err := json.Marshal(map[string]string{"Password": next.Reveal()})
	if err != nil {
		return err
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, target, bytes.NewReader(body))
	if err != nil {
		return err
	}

	request.Header.Set("Content-Type", "application/json")
	if etag != "" {
		request.Header.Set("If-Match", etag)
	}

	r, err := send(a.http, request, a.bmc)
	if err != nil {
		return err
	}

	switch r.status {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent:
		return nil
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusConflict, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return kept(fmt.Sprintf("it says %d, %s", r.status, refusalText(r.body)))
	case http.StatusUnauthorized:
		return errUnclear
	}
	return badStatus{r, path}
}

// get reads a resource. A BMC that refuses the first one was told the password once.
func (a accountClient) get(ctx context.Context, path string, into any) (reply, error) {
	address, err := a.resolve(path)
	if err != nil {
		return reply{}, err
	}

	r, err := get(ctx, a.http, address, a.bmc)
	switch {
	case err != nil:
		return reply{}, err
	case r.status == http.StatusNotFound, r.status == http.StatusForbidden:
		return reply{}, kept(fmt.Sprintf("it answers %s with %d", path, r.status))
	case r.status != http.StatusOK:
		return reply{}, badStatus{r, path}
	}
	if err := json.Unmarshal(r.body, into); err != nil {
		return reply{}, kept(fmt.Sprintf("it answers %s with something that is no Redfish", path))
	}

	return r, nil
}

// resolve is the address of a resource that the BMC names: on itself, or the password would go elsewhere.
func (a accountClient) resolve(path string) (string, error) {
	u, err := a.system.Parse(path)
	if err != nil || u.Host != a.system.Host || u.Scheme != a.system.Scheme {
		return "", kept("it names a resource that is not its own: " + path)
	}
	return u.String(), nil
}

// refusalText is what a BMC says of a request that it refuses (DSP0266, 8.6): its extended messages, or the message.
func refusalText(body []byte) string {
	type message struct{ Message string }
	var said struct {
		Error struct {
			Message  string    `json:"message"`
			Extended []message `json:"@Message.ExtendedInfo"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil {
		return "and nothing else"
	}

	for _, m := range said.Error.Extended {
		if m.Message != "" {
			return m.Message
		}
	}
	if said.Error.Message != "" {
		return said.Error.Message
	}

	return "and nothing else"
}

// hide takes secrets out of a text: BMCs quote what they were sent.
func hide(text string, secrets ...site.Secret) string {
	for _, secret := range secrets {
		if !secret.IsZero() {
			text = strings.ReplaceAll(text, secret.Reveal(), secret.String())
		}
	}
	return text
}
