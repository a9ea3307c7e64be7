package bmc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"firstlight.dev/firstlight/assets/site"
)

// maxNICs bounds how many NICs of a server are asked for: each is a request, and a BMC takes a second for it.
const maxNICs = 32

// ErrNoNICs says that a BMC lists no NIC with a MAC.
var ErrNoNICs = errors.New("the BMC lists no NIC with a MAC")

// nic is what matters of a NIC (DMTF, EthernetInterface).
type nic struct {
	MAC       string `json:"MACAddress"`
	Permanent string `json:"PermanentMACAddress"`
	Link      string `json:"LinkStatus"` // LinkUp, LinkDown, NoLink; "" if it is not known while the server is off
	Enabled   *bool  `json:"InterfaceEnabled"`
}

// BootMAC asks a BMC by Redfish for the MACs of its server, and returns the one that it most likely boots from, in
// lower case: heard on the network, else with a link, else the first. It is for servers of which no one knows a MAC;
// the BMC took the password before.
func (client Client) BootMAC(ctx context.Context, b site.BMC, heard func(mac string) bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	system, err := systemURL(b)
	if err != nil {
		return "", err
	}

	c := client.http(b)
	defer c.CloseIdleConnections()
	var all struct{ EthernetInterfaces link }
	if err := getJSON(ctx, c, *system, system.Path, b, &all); err != nil {
		return "", err
	}

	nics, err := listNICs(ctx, c, *system, all.EthernetInterfaces.Path, b)
	if err != nil {
		return "", err
	}

	return chooseNIC(nics, heard)
}

// link is how one resource names another (DSP0266, 8.5).
type link struct {
	Path string `json:"@odata.id"`
}

// listNICs are those of a collection; ErrNoNICs if the system names none.
func listNICs(ctx context.Context, c *http.Client, system url.URL, path string, b site.BMC) (nics []nic, err error) {
	if path == "" {
		return nil, ErrNoNICs
	}

	var list struct{ Members []link }
	if err := getJSON(ctx, c, system, path, b, &list); err != nil {
		return nil, err
	}

	for _, member := range list.Members[:min(len(list.Members), maxNICs)] {
		var n nic
		if err := getJSON(ctx, c, system, member.Path, b, &n); err != nil {
			return nil, err
		}
		nics = append(nics, n)
	}

	return nics, nil
}

// address is the MAC, in lower case; "" if there is none.
func (n nic) address() string {
	for _, text := range []string{n.MAC, n.Permanent} {
		if mac, err := net.ParseMAC(text); err == nil && len(mac) == 6 {
			return mac.String()
		}
	}
	return ""
}

func getJSON(ctx context.Context, c *http.Client, system url.URL, path string, b site.BMC, into any) error {
	system.Path = path
	r, err := get(ctx, c, system.String(), b)
	if err != nil {
		return fmt.Errorf("ask the BMC for %s: %w", path, err)
	}
	if r.status != http.StatusOK {
		return fmt.Errorf("ask the BMC for %s: it says %d", path, r.status)
	}
	if err := json.Unmarshal(r.body, into); err != nil {
		return fmt.Errorf("read %s of the BMC: %w", path, err)
	}
	return nil
}

// chooseNIC is pure. Of equals it takes the first.
func chooseNIC(nics []nic, heard func(mac string) bool) (string, error) {
	best, rank := "", -1
	for _, n := range nics {
		mac := n.address()
		if mac == "" || n.Enabled != nil && !*n.Enabled {
			continue
		}

		r := 0
		switch {
		case heard(mac):
			r = 2
		case n.Link == "LinkUp":
			r = 1
		}
		if r > rank {
			best, rank = mac, r
		}
	}

	if rank < 0 {
		return "", ErrNoNICs
	}

	return best, nil
}
