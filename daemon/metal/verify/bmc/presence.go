package bmc

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/client"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
)

// Presence is what answers at an address to questions that need no login.
type Presence struct {
	IPMI    bool   `json:"ipmi,omitempty"`    // a presence pong says that it speaks IPMI
	Redfish string `json:"redfish,omitempty"` // version in its service root; "": it has none
	Product string `json:"product,omitempty"` // of its service root; "" if that does not say
}

// IsBMC reports whether something answers as a BMC does.
func (p Presence) IsBMC() bool { return p.IPMI || p.Redfish != "" }

// String is why it is taken for a BMC.
func (p Presence) String() string {
	var found []string
	if p.IPMI {
		found = append(found, "answers a presence ping as IPMI does")
	}
	if p.Redfish != "" {
		found = append(found, strings.TrimSpace("has a service root of Redfish "+p.Redfish+" "+p.Product))
	}
	if len(found) == 0 {
		return "answers neither a presence ping nor Redfish"
	}
	return strings.Join(found, " and ")
}

// Bounds of the two questions: a BMC that is there and has nothing else to do answers in a second.
const (
	pingTimeout = 2 * time.Second
	rootTimeout = 10 * time.Second
)

// AskPresence asks whether a BMC is at an address, at the usual ports: by the presence ping of ASF (IPMI 2.0, 13.2.3
// and 13.2.4), and for the service root of Redfish (DSP0266, 9.4.1). Neither needs a login, and nothing is told that is
// worth anything, so the certificate is not checked.
func AskPresence(ctx context.Context, addr netip.Addr) Presence {
	return askPresence(ctx, netip.AddrPortFrom(addr, 623), netip.AddrPortFrom(addr, 443))
}

func askPresence(ctx context.Context, ipmi, redfish netip.AddrPort) (p Presence) {
	var both sync.WaitGroup
	both.Go(func() { p.IPMI = answersPing(ctx, ipmi) })
	both.Go(func() { p.Redfish, p.Product = askServiceRoot(ctx, redfish) })
	both.Wait()
	return p
}

func answersPing(ctx context.Context, at netip.AddrPort) bool {
	c, err := client.NewClient(bracket(at.Addr().String()), int(at.Port()), "", "")
	if err != nil {
		return false
	}

	pong, err := c.WithTimeout(pingTimeout).WithRetry(1).RmcpPing(ctx)
	return err == nil && pong.IPMISupported
}

// askServiceRoot is the version of Redfish that is spoken at an address, and the product; "" if there is none.
func askServiceRoot(ctx context.Context, at netip.AddrPort) (version, product string) {
	ctx, cancel := context.WithTimeout(ctx, rootTimeout)
	defer cancel()
	b := site.BMC{Address: site.BMCAddress("redfish://" + at.String()), VerifyCertificate: site.CheckNone}
	c := Client{}.http(b)
	defer c.CloseIdleConnections()
	root, err := get(ctx, c, fmt.Sprintf("https://%s/redfish/v1/", at), site.BMC{})
	if err != nil || root.status != http.StatusOK {
		return "", ""
	}

	var said struct{ RedfishVersion, Product, Vendor string }
	if json.Unmarshal(root.body, &said) != nil {
		return "", ""
	}
	if said.Product == "" {
		said.Product = said.Vendor
	}

	return status.Word(said.RedfishVersion), status.Word(said.Product)
}

// bracket is a host as go-ipmi and URLs take it: IPv6 in brackets.
func bracket(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}
