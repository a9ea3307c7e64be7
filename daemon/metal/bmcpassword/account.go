package bmcpassword

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/vault"
)

// account is one account of a BMC, with the nodes that have it.
type account struct {
	host     string   // see bmcName
	bmc      site.BMC // as the site says, with the password that it says
	nodes    []string
	conflict string // a node that says another password than the first; "": none
}

func (a account) key() string { return a.host + " " + a.bmc.Username }

// bmcName is the BMC behind an address: its host, by whatever protocol it is spoken to, or host and port if that is not
// the usual one of the protocol, because there several BMCs may be behind one host.
func bmcName(a site.BMCAddress) string {
	usual := site.BMCAddress(a.Scheme() + "://" + "bmc")
	if a.Port() == usual.Port() {
		return strings.ToLower(a.Host())
	}
	return a.Endpoint()
}

// listAccounts are the accounts of a site's BMCs, in the order of its nodes.
func listAccounts(nodes []site.Node) (all []account) {
	for _, n := range nodes {
		if n.BMC == nil {
			continue
		}

		host := bmcName(n.BMC.Address)
		i := slices.IndexFunc(all, func(a account) bool { return a.host == host && a.bmc.Username == n.BMC.Username })
		if i < 0 {
			all = append(all, account{host: host, bmc: *n.BMC, nodes: []string{string(n.Name)}})
			continue
		}

		a := &all[i]
		a.nodes = append(a.nodes, string(n.Name))
		if a.bmc.Password.Reveal() != n.BMC.Password.Reveal() {
			a.conflict = cmp.Or(a.conflict, string(n.Name))
		}
	}
	return all
}

// check says why the password of an account cannot be replaced; nil: it can.
func (a account) check() error {
	switch {
	case a.conflict != "":
		return fmt.Errorf("%s and %s have the same BMC and user with different passwords; correct one of them in site.yaml",
			a.nodes[0], a.conflict)
	case a.bmc.Username == "":
		return fmt.Errorf("site.yaml names no user of its BMC; give it bmc.username")
	}
	return nil
}

// with is the BMC with another password.
func (a account) with(password string) site.BMC {
	b := a.bmc
	b.Password = site.NewSecret(password)
	return b
}

// present is the password that the BMC takes if nobody has changed it there.
func (a account) present(kept vault.BMCAccount) string { return kept.Password(a.bmc.Password.Reveal()) }
