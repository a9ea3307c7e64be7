// Package summary says in a few lines what a site asks for, to those who have checked it.
package summary

import (
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/site"
)

// Describe says that a site is sound, what it asks for, and which nodes need a person or one more boot, in lines that
// begin with the name of its document.
func Describe(name string, s *site.Site) string {
	nodes := commandline.Amount(len(s.Nodes), "node")
	if s.Discover != nil {
		nodes += fmt.Sprintf(" and up to %d discovered", s.Discover.Count)
	}
	text := fmt.Sprintf("%s: ok: %s, %s", name, nodes, commandline.Amount(len(s.Clusters), "cluster"))
	var noBMC, noMAC []string
	for _, n := range s.Nodes {
		switch {
		case n.BMC == nil:
			noBMC = append(noBMC, string(n.Name))
		case len(n.MACs) == 0 && n.BootMAC == "":
			noMAC = append(noMAC, string(n.Name))
		}
	}

	if len(noBMC) > 0 {
		text += fmt.Sprintf("\n%s: without a BMC: %s: a person switches each on, twice in all", name, firstNames(noBMC))
	}
	if len(noMAC) > 0 {
		text += fmt.Sprintf("\n%s: without a MAC: %s: found by the address of its BMC", name, firstNames(noMAC))
	}
	return text
}

// firstNames are the first three names, and how many more there are.
func firstNames(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
