package bmc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"

	"github.com/bougou/go-ipmi/pkg/client"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/status"
)

// Identity is which server a BMC says it is of, bounded and printable. What it does not say is empty.
type Identity struct {
	Model  string   // manufacturer and product
	Serial string   // of the server
	MACs   []string // of its NICs, lower case; IPMI names none
}

// Address is where to log in to the BMC at an address: ipmi://HOST, or redfish://HOST, to which Identify adds the
// system. It is by IPMI where the BMC speaks both: there it proves that it knows the password before the appliance does
// (RAKP, IPMI 2.0, 13.28), and by Redfish the appliance tells it.
func (p Presence) Address(addr netip.Addr) site.BMCAddress {
	if p.IPMI {
		return site.BMCAddress("ipmi://" + bracket(addr.String()))
	}
	return site.BMCAddress("redfish://" + bracket(addr.String()))
}

// Identify logs in to a BMC once, by an address of Presence.Address, and asks which server it is of. It returns the
// BMC's complete address, as site.yaml has it. Where the login is taken and the BMC says nothing of its server, the
// Answer is OK all the same.
func (c Client) Identify(ctx context.Context, b site.BMC) (site.BMCAddress, Identity, Answer) {
	ctx, cancel := context.WithTimeout(ctx, 2*limit) // a login, and up to maxNICs questions
	defer cancel()
	if b.Address.Scheme() == "ipmi" {
		who, a := identifyByIPMI(ctx, b)
		return b.Address, who, a
	}
	return c.identifyByRedfish(ctx, b)
}

func identifyByIPMI(ctx context.Context, b site.BMC) (Identity, Answer) {
	c, closeSession, refused := openIPMI(ctx, b)
	if refused != nil {
		return Identity{}, *refused
	}
	defer closeSession()

	chassis, err := c.GetChassisStatus(ctx)
	if err != nil {
		return Identity{}, judgeIPMIError(b, err)
	}

	return readFRU(ctx, c), Answer{
		Verdict: OK,
		Text:    fmt.Sprintf("%s takes the password by IPMI", addressText(b)),
		On:      chassis.PowerIsOn,
	}
}

// builtinFRU is the inventory of the system itself (IPMI 2.0, 34).
const builtinFRU = 0

// readFRU reads the serial number that is on the label of a server. It is the product's, and where that is empty the
// chassis' (Platform Management FRU Information Storage Definition, 10 and 12).
func readFRU(ctx context.Context, c *client.Client) (who Identity) {
	fru, err := c.GetFRU(ctx, builtinFRU, "")
	if err != nil {
		return who
	}

	if p := fru.ProductInfoArea; p != nil {
		who.Serial = status.Word(string(p.SerialNumber))
		who.Model = strings.TrimSpace(status.Word(string(p.Manufacturer)) + " " + status.Word(string(p.Name)))
	}
	if fru.ChassisInfoArea != nil && who.Serial == "" {
		who.Serial = status.Word(string(fru.ChassisInfoArea.SerialNumber))
	}

	return who
}

// identifyByRedfish asks for the one system that a BMC has, with the password: that is the only login.
func (client Client) identifyByRedfish(ctx context.Context, b site.BMC) (site.BMCAddress, Identity, Answer) {
	fail := func(a Answer) (site.BMCAddress, Identity, Answer) { return b.Address, Identity{}, a }
	const systems = "/redfish/v1/Systems"
	base, err := systemURL(b)
	if err != nil {
		return fail(Answer{Verdict: Unfit, Text: excerpt.Line(err.Error())})
	}

	c := client.http(b)
	defer c.CloseIdleConnections()
	base.Path = systems
	r, err := get(ctx, c, base.String(), b)
	if err != nil {
		return fail(judgeTransportError(b, err))
	}
	if r.status != http.StatusOK {
		return fail(judgeStatus(b, r, systems))
	}

	path, err := onlySystem(r.body)
	if err != nil {
		return fail(Answer{
			Verdict: Unfit,
			Text:    fmt.Sprintf("the BMC %s %v", addressText(b), err),
			Fix:     "name its server in nodes of site.yaml, with bmc.address: redfish://ADDRESS/redfish/v1/Systems/ID",
		})
	}

	b.Address += site.BMCAddress(path)
	var system struct {
		PowerState, Manufacturer, Model, SerialNumber string
		EthernetInterfaces                            link
	}
	if err := getJSON(ctx, c, *base, path, b, &system); err != nil {
		return fail(Answer{Verdict: Unfit, Text: excerpt.Line(err.Error()), Fix: fixWait})
	}

	who := Identity{
		Model:  strings.TrimSpace(status.Word(system.Manufacturer) + " " + status.Word(system.Model)),
		Serial: status.Word(system.SerialNumber),
	}
	// Without NICs it may be known by its serial number.
	nics, _ := listNICs(ctx, c, *base, system.EthernetInterfaces.Path, b)
	for _, n := range nics {
		if mac := n.address(); mac != "" {
			who.MACs = append(who.MACs, mac)
		}
	}

	return b.Address, who, Answer{
		Verdict: OK,
		Text:    fmt.Sprintf("%s takes the password by Redfish", addressText(b)),
		On:      system.PowerState == "On",
	}
}

// systemPath is what the path of a system may be: it becomes part of an address.
var systemPath = regexp.MustCompile(`^/redfish/v1/Systems/[A-Za-z0-9._-]{1,100}/?$`)

// onlySystem is the path of the one system of a collection. The error says what is there instead.
func onlySystem(collection []byte) (string, error) {
	var list struct{ Members []link }
	if json.Unmarshal(collection, &list) != nil {
		return "", errors.New("answers with something that is no Redfish")
	}
	if len(list.Members) != 1 {
		return "", fmt.Errorf("is that of %d systems", len(list.Members))
	}
	if path := list.Members[0].Path; systemPath.MatchString(path) {
		return strings.TrimSuffix(path, "/"), nil
	}
	return "", errors.New("names its system by an odd path")
}
