package site

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// inherit is a node with the defaults of its site where it gives no value of its own.
func (n Node) inherit(d NodeDefaults) Node {
	n.BootMode = cmp.Or(n.BootMode, d.BootMode)
	n.Overwrite = cmp.Or(n.Overwrite, d.Overwrite)
	n.OS = n.OS.inherit(d.OS)
	if n.RootDevice == nil && d.RootDevice != nil {
		n.RootDevice = cloneOrZero(d.RootDevice)
	}

	if n.BMC != nil && n.BMC.Username == "" && n.BMC.Password.IsZero() {
		n.BMC = cloneOrZero(n.BMC)
		n.BMC.Username, n.BMC.Password = d.BMC.Username, d.BMC.Password
	}

	if len(d.Labels) > 0 {
		own := n.Labels
		n.Labels = maps.Clone(d.Labels)
		maps.Copy(n.Labels, own)
	}

	return n
}

func (o OS) inherit(d OS) OS {
	if o.Image == "" && o.URL == "" && o.SHA256 == "" && o.Format == "" && o.UserData == "" {
		o.Image, o.URL, o.SHA256, o.Format, o.UserData = d.Image, d.URL, d.SHA256, d.Format, d.UserData
	}

	o.Username = cmp.Or(o.Username, d.Username)
	if o.Password.IsZero() {
		o.Password = d.Password
	}

	return o
}

func (r *reader) checkNodeDefaults(d *NodeDefaults) {
	const path = "nodeDefaults"
	r.checkLogin(d.BMC, path+".bmc")
	r.checkOS(&d.OS, path+".os")
	r.checkRootDevice(d.RootDevice, path+".rootDevice")
	r.checkLabels(d.Labels, path+".labels")
}

// checkSharedLogin refuses a BMC elsewhere that would be told the login of all, where the site says which networks BMCs
// are in: an address with a slip in it is one of somebody else's machines, and by IPMI any machine gets a hash. What a
// host name stands for, whoever answers for DNS says.
func (r *reader) checkSharedLogin(s *Site) {
	var networks []netip.Prefix
	if n := s.Networks.BMC; n != nil && n.CIDR.IsValid() {
		networks = append(networks, n.CIDR)
	}
	if s.Discover != nil {
		networks = append(networks, s.Discover.BMCs...)
	}
	if len(networks) == 0 || s.NodeDefaults.BMC == (Login{}) {
		return
	}

	for i, n := range s.Nodes {
		if n.BMC == nil || n.BMC.Address == "" || n.BMC.Username != "" || !n.BMC.Password.IsZero() {
			continue
		}
		addr, err := netip.ParseAddr(n.BMC.Address.Host())
		isThere := func(p netip.Prefix) bool { return err == nil && p.Contains(addr.Unmap()) }
		if slices.ContainsFunc(networks, isThere) {
			continue
		}
		r.refuse(
			fmt.Sprintf("nodes[%d].bmc.address", i),
			refusal{reason: loginToldOutside, of: n.BMC.Address.Host()}, 0,
			"%s is not in a network of BMCs (%s), and would be told nodeDefaults.bmc; correct it, or give username and "+
				"password here", yamldoc.Quote(n.BMC.Address.Host()), describePrefixes(networks),
		)
	}
}

func describePrefixes(all []netip.Prefix) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

func (r *reader) checkLogin(l Login, path string) {
	if (l.Username == "") != l.Password.IsZero() {
		r.Report(path, "username and password belong together; give both")
	}
}

func (r *reader) checkOS(o *OS, path string) {
	switch {
	case o.URL != "" && o.Image != "":
		r.Report(path+".url", "image is given as well; keep one of the two")
	case o.URL != "" && o.SHA256 == "":
		r.Report(path+".url", "an image from outside needs os.sha256; add what sha256sum prints")
	case o.URL == "" && (o.SHA256 != "" && o.Image == "" || o.Format != ""):
		r.Report(path, "sha256 and format describe the image at url; add url or remove them")
	case o.URL == "" && o.Image == "" && o.UserData == UserDataIgnition:
		r.Report(path+".userData", "it describes an image, and none is given here; add image or url")
	case o.URL != "" || o.Image != "":
		r.checkImageName(o, path)
	}
}

func (r *reader) checkRootDevice(d *RootDevice, path string) {
	if d != nil && *d == (RootDevice{}) {
		r.Report(path, "no hint is given; add one, such as serialNumber, or remove the line")
	}
}

func (r *reader) checkLabels(labels map[string]string, path string) {
	const word = `([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)`
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if !yamldoc.MatchesPattern(`^([a-z0-9.-]{1,253}/)?`+word+`$`, k) || !yamldoc.MatchesPattern(`^`+word+`?$`, labels[k]) {
			r.Report(yamldoc.Join(path, k), "not a Kubernetes label; use up to 63 letters, digits, '-', '_' and '.'")
		}
	}
}
