package unknown

import (
	"fmt"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/status"
)

// Name is what a machine is called in what is to be pasted, until its owner finds a better one.
func Name(u status.UnknownMachine) string {
	if u.MAC == "" {
		return "node-" + strings.NewReplacer(".", "-", ":", "-").Replace(u.BMC)
	}
	return "node-" + strings.ReplaceAll(u.MAC, ":", "")[6:]
}

// SiteEntry is an entry of nodes in site.yaml. Whoever pastes it writes the BMC's user and password.
func SiteEntry(u status.UnknownMachine) string {
	return siteEntry{UnknownMachine: u, name: Name(u), login: ", username: USER, password: PASSWORD"}.text()
}

// siteEntry is what one entry of nodes is written from.
type siteEntry struct {
	status.UnknownMachine
	name   string
	login  string // behind the BMC's address
	remark string // in a line of its own; "": none
}

func (e siteEntry) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "- name: %s # %s\n", e.name, Summary(e.UnknownMachine))
	if e.MAC != "" {
		fmt.Fprintf(&b, "  macs: [%q]\n", e.MAC)
	}
	if e.remark != "" {
		fmt.Fprintf(&b, "  # %s\n", e.remark)
	}
	if e.BMC != "" {
		fmt.Fprintf(&b, "  bmc: {address: %q%s}\n", e.BMCAddress(), e.login)
	}
	if e.Mode == "bios" {
		b.WriteString("  bootMode: legacy\n")
	}
	if len(e.Disks) > 1 && e.Disks[0].Serial != "" {
		fmt.Fprintf(&b, "  rootDevice: {serialNumber: %q} # %s\n", e.Disks[0].Serial, diskText(e.Disks[0]))
	}
	return b.String()
}

// SiteNodes is the key nodes of site.yaml with an entry for each machine, ready to be pasted: the BMCs' user and password
// come from nodeDefaults. What two machines claim is given to neither.
func SiteNodes(all []status.UnknownMachine) string {
	names, bmcs := map[string]int{}, map[string]int{}
	for _, u := range all {
		names[Name(u)]++
		bmcs[u.BMC]++
	}

	var b strings.Builder
	b.WriteString("# The BMCs' user and password: nodeDefaults: {bmc: {username: USER, password: PASSWORD}}\nnodes:\n")
	for _, u := range all {
		e := siteEntry{UnknownMachine: u, name: Name(u)}
		if names[e.name] > 1 {
			e.name = "node-" + strings.ReplaceAll(u.MAC, ":", "")
		}
		if bmcs[u.BMC] > 1 && u.BMC != "" {
			e.remark = "its BMC, " + u.BMC + ", is claimed by another machine, too"
			e.BMC = ""
		}
		b.WriteString(e.text())
	}
	return b.String()
}

// HostDocument is the Secret and the BareMetalHost of a machine, for kubectl apply; "" if its BMC is not known,
// because Metal3 does nothing with a host that has none, or if its MAC is not, which Metal3 needs for most.
func HostDocument(u status.UnknownMachine) string {
	if u.BMC == "" || u.MAC == "" {
		return ""
	}

	name, mode := Name(u), "UEFI"
	if u.Mode == "bios" {
		mode = "legacy"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: %[1]s-bmc-secret, namespace: metal3}
stringData: {username: USER, password: PASSWORD}
---
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {name: %[1]s, namespace: metal3}
spec: # %[2]s
  online: true
  bootMACAddress: %[3]q
  bootMode: %[4]s
  bmc: {address: %[5]q, credentialsName: %[1]s-bmc-secret}
`, name, Summary(u), u.MAC, mode, u.BMCAddress())
}

// Summary is a machine in one line.
func Summary(u status.UnknownMachine) string {
	parts := []string{}
	for _, part := range []string{u.Model, prefix("serial ", u.Serial)} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if u.CPUs > 0 {
		parts = append(parts, strings.TrimSpace(fmt.Sprintf("%d CPUs %s", u.CPUs, u.Arch)))
	}
	if u.Memory > 0 {
		parts = append(parts, fmt.Sprintf("%d GiB RAM", u.Memory>>30))
	}
	if u.MAC == "" {
		return strings.Join(append(parts, "its BMC alone is known"), ", ")
	}

	var bytes int64
	for _, d := range u.Disks {
		bytes += min(d.Bytes, 1<<50)
	}
	parts = append(parts, fmt.Sprintf("%s of %d GB", commandline.Amount(len(u.Disks), "disk"), bytes/1e9), commandline.Amount(len(u.NICs), "NIC"))
	return strings.Join(parts, ", ")
}

// Text is a machine in full, for people.
func Text(u status.UnknownMachine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", u.Key(), Summary(u))
	if u.CPU != "" {
		fmt.Fprintf(&b, "  CPU   %s\n", u.CPU)
	}
	for _, d := range u.Disks {
		fmt.Fprintf(&b, "  disk  %s\n", diskText(d))
	}
	for _, n := range u.NICs {
		fmt.Fprintf(&b, "  NIC   %s\n", nicText(n))
	}
	if u.BMC != "" {
		fmt.Fprintf(&b, "  BMC   %s\n", strings.Join(compact(u.BMC, u.Found), ", "))
	}
	if u.Why != "" {
		fmt.Fprintf(&b, "  node  %s\n", strings.Join(compact(u.Node, u.Why, u.Fix), "; "))
	}
	return b.String()
}

// compact are the texts that are not empty.
func compact(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// nicText is a NIC as its system says it, or its BMC, which knows no name.
func nicText(n status.UnknownNIC) string {
	switch {
	case n.Name == "":
		return n.MAC
	case n.Link:
		return fmt.Sprintf("%s %s, link", n.Name, n.MAC)
	}
	return fmt.Sprintf("%s %s, no link", n.Name, n.MAC)
}

func diskText(d status.UnknownDisk) string {
	text := fmt.Sprintf("%s %d GB", d.Name, d.Bytes/1e9)
	for _, more := range []string{d.Model, prefix("serial ", d.Serial)} {
		if more != "" {
			text += ", " + more
		}
	}
	return text
}

func prefix(what, of string) string {
	if of == "" {
		return ""
	}
	return what + of
}
