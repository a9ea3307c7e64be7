package bmc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/bmctrust"
)

// loginRedfish asks the service root, which needs no password (DSP0266, 9.4.1), and then for the
// one system that the address names, with the password: that is the only login.
func (client Client) loginRedfish(ctx context.Context, b site.BMC) Answer {
	system, err := systemURL(b)
	if err != nil {
		return Answer{
			Verdict: Unfit,
			Text:    "bmc.address cannot be read",
			Fix:     "correct bmc.address of this node in site.yaml",
		}
	}

	c := client.http(b)
	defer c.CloseIdleConnections()
	root := *system
	root.Path = "/redfish/v1/"
	response, err := get(ctx, c, root.String(), site.BMC{})
	if err != nil {
		return judgeTransportError(b, err)
	}
	if response.status != http.StatusOK && response.status != http.StatusUnauthorized && response.status != http.StatusForbidden {
		return judgeStatus(b, response, "/redfish/v1/")
	}

	response, err = get(ctx, c, system.String(), b)
	if err != nil {
		return judgeTransportError(b, err)
	}
	if response.status != http.StatusOK {
		return judgeStatus(b, response, system.Path)
	}

	var power struct{ PowerState string }
	if err := json.Unmarshal(response.body, &power); err != nil {
		return Answer{
			Verdict: Unfit,
			Text: fmt.Sprintf(
				"the BMC %s answers %s with something that is no Redfish", addressText(b), system.Path,
			),
			Fix: "correct bmc.address of this node in site.yaml",
		}
	}

	return Answer{
		Verdict: OK,
		Text:    fmt.Sprintf("%s takes the password by Redfish", addressText(b)),
		On:      power.PowerState == "On",
	}
}

// systemURL is where a BMC shows the system that its address names.
func systemURL(b site.BMC) (*url.URL, error) {
	system, err := url.Parse(string(b.Address))
	if err != nil {
		return nil, fmt.Errorf("read address of BMC: %w", err)
	}

	system.Scheme = "https"
	if !b.Address.HasTLS() {
		system.Scheme = "http"
	}

	return system, nil
}

type reply struct {
	status   int
	body     []byte
	etag     string // "": it has none
	location string // of a redirect that was not followed
}

// elsewhere is a redirect to another machine: the password is not taken there.
var elsewhere = errors.New("redirect to another machine")

// http is a client for one BMC. Its transport completes the handshake, and with it the check of the certificate,
// before it sends a request.
func (client Client) http(b site.BMC) *http.Client {
	return &http.Client{
		Timeout: 20 * time.Second, // for one answer; some BMCs take ten seconds
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: 8 * time.Second}).DialContext,
			TLSClientConfig: client.Pins.TLS(b),
		},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if first := via[0].URL; next.URL.Host != first.Host || next.URL.Scheme != first.Scheme || len(via) > 3 {
				return elsewhere
			}
			return nil
		},
	}
}

// get asks with the credentials of b, if it has any.
func get(ctx context.Context, c *http.Client, address string, b site.BMC) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return reply{}, err
	}
	return send(c, request, b)
}

func send(c *http.Client, request *http.Request, b site.BMC) (reply, error) {
	if b.Username != "" {
		request.SetBasicAuth(b.Username, b.Password.Reveal())
	}

	request.Header.Set("OData-Version", "4.0")
	request.Header.Set("Accept", "application/json")
	response, err := c.Do(request)
	if errors.Is(err, elsewhere) {
		return reply{status: response.StatusCode, location: response.Header.Get("Location")}, nil
	}
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()

	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return reply{status: response.StatusCode, body: body, etag: response.Header.Get("ETag")}, err
}

// judgeStatus says what a status other than 200 means.
func judgeStatus(b site.BMC, r reply, path string) Answer {
	switch {
	case r.status == http.StatusUnauthorized:
		return refusedAnswer(b, fmt.Sprintf("the password of user %q (it says 401)", b.Username))
	case r.status == http.StatusForbidden:
		return refusedAnswer(b, fmt.Sprintf("user %q the system (it says 403)", b.Username))
	case r.location != "":
		return Answer{
			Verdict: Unfit,
			Text: fmt.Sprintf(
				"the BMC %s sends %s on to %s, where the password is not taken", addressText(b), path,
				sanitize(r.location),
			),
			Fix: "write the address that it names into bmc.address, if it is a BMC of yours",
		}
	case r.status == http.StatusNotFound:
		return Answer{Verdict: Unfit, Text: fmt.Sprintf("the BMC %s has no %s", addressText(b), path),
			Fix: "correct the path of bmc.address: /redfish/v1/Systems/ followed by the ID that the BMC lists"}
	case r.status == http.StatusServiceUnavailable, r.status == http.StatusTooManyRequests:
		return Answer{
			Verdict: Busy,
			Text:    fmt.Sprintf("the BMC %s is busy (it says %d)", addressText(b), r.status),
			Fix:     fixWait,
		}
	}
	return Answer{
		Verdict: Unfit,
		Text:    fmt.Sprintf("the BMC %s answers %s with %d", addressText(b), path, r.status),
		Fix:     "restart the BMC, or look into its own log",
	}
}

// judgeTransportError says what an error without an answer means.
func judgeTransportError(b site.BMC, err error) Answer {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var change bmctrust.Change
	switch {
	case errors.As(err, &change):
		return Answer{Verdict: Changed, Text: change.Text(), Fix: change.Fix("NODE")} // the check names the node
	case errors.Is(err, bmctrust.ErrNotRecorded):
		return Answer{
			Verdict: Unfit,
			Text:    fmt.Sprintf("the BMC %s is told nothing: %s", addressText(b), excerpt.Line(err.Error())),
			Fix:     "check whether the stick has room and can be written to; it is asked again automatically",
		}
	case errors.As(err, &unknown), errors.As(err, &name), errors.As(err, &invalid):
		return Answer{
			Verdict: Unfit,
			Text: fmt.Sprintf(
				"the certificate of the BMC %s is not to be trusted: %s", addressText(b), excerpt.Line(errors.Unwrap(err).Error()),
			),
			Fix: "give the BMC a certificate for the name in bmc.address, name its authority in bmc.ca of the site, or set bmc.verifyCertificate: pin",
		}
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return Answer{
			Verdict: Unfit,
			Text:    fmt.Sprintf("the BMC %s does not speak TLS there", addressText(b)),
			Fix:     "write redfish+http:// into bmc.address, or correct the port",
		}
	}

	return unreachableAnswer(b, "Redfish", err)
}

// sanitize keeps what a stranger sent fit for a console.
func sanitize(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s[:min(len(s), 200)])
}
