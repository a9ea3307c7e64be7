package site

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// Values of OS.UserData.
const (
	UserDataCloudInit = "cloud-init"
	UserDataIgnition  = "ignition"
)

// An imageFamily is what is known of images by how their makers name them.
type imageFamily struct {
	word      string // in lower case; it begins a word of the name, or several words together do
	userData  string
	platforms []string // words of those of its images that read no config drive
	refusal   string   // why its images cannot be used; "" if they can
}

// imageFamilies are in the order in which they are looked for.
func imageFamilies() []imageFamily {
	ignition := []string{"metal", "qemu", "vmware", "aws", "azure", "gce", "gcp", "hetzner", "proxmox"}
	return []imageFamily{
		{word: "flatcar", userData: UserDataIgnition, platforms: ignition},
		{word: "fedoracoreos", userData: UserDataIgnition, platforms: ignition},
		{word: "fcos", userData: UserDataIgnition, platforms: ignition},
		{word: "rhcos", userData: UserDataIgnition, platforms: ignition},
		{
			word: "talos",
			refusal: "Talos has no login by which its node could be verified; apply a BareMetalHost with its machine " +
				"configuration as spec.userData instead",
		},
	}
}

// fileName is the name of the image's file, in lower case.
func (o OS) fileName() string {
	name := o.Image
	if o.URL != "" {
		name, _, _ = strings.Cut(string(o.URL), "?")
	}
	return strings.ToLower(path.Base(name))
}

// family is what the image's name says of it. A part of a word is not enough: metalos is no Talos.
func (o OS) family() imageFamily {
	words := splitWords(o.fileName())
	rest := strings.Join(words, "")
	for _, word := range words {
		for _, f := range imageFamilies() {
			if strings.HasPrefix(rest, f.word) {
				return f
			}
		}
		rest = rest[len(word):]
	}
	return imageFamily{userData: UserDataCloudInit}
}

// mayReadIgnition reports whether the name has a word in it of systems that read Ignition, and is none of theirs.
func (o OS) mayReadIgnition() bool {
	contains := func(word string) bool { return strings.Contains(o.fileName(), word) }
	return o.family().word == "" && slices.ContainsFunc([]string{"coreos", "flatcar", "rhcos"}, contains)
}

// UserDataKind is the kind of user data that the image reads: what the site says, else what its name implies.
func (o OS) UserDataKind() string { return cmp.Or(o.UserData, o.family().userData, UserDataCloudInit) }

// checkImageName refuses images that cannot work, by their names.
func (r *reader) checkImageName(o *OS, path string) {
	at := path + ".image"
	if o.URL != "" {
		at = path + ".url"
	}

	name, family := o.fileName(), o.family()
	hasPlatform := func(word string) bool { return slices.Contains(splitWords(name), word) }
	switch i := slices.IndexFunc(family.platforms, hasPlatform); {
	case family.refusal != "":
		r.refuse(at, refusal{reason: systemRefused, of: name}, 0, "%s: %s", yamldoc.Quote(name), family.refusal)
	case strings.HasSuffix(name, ".iso"):
		r.refuse(at, refusal{reason: imageOfDrive, of: name}, 0,
			"%s is started from a drive, not written to a disk; use the disk image of that system, qcow2 or raw", yamldoc.Quote(name))
	case hasSuffix(name, ".xz", ".gz", ".bz2", ".zst", ".zip"):
		r.refuse(at, refusal{reason: imageCompressed, of: name}, 0,
			"%s is compressed, and would be written to the disk as it is; unpack it first", yamldoc.Quote(name))
	case i >= 0 && o.UserData == "":
		r.refuse(at, refusal{reason: imageOfCloud, of: name}, 0,
			"%s is made for %s, and reads no config drive; use the image of that system for openstack", yamldoc.Quote(name), family.platforms[i])
	case o.UserData == "" && o.mayReadIgnition():
		r.refuse(at, refusal{reason: userDataUnclear, of: name}, 0,
			"%s may read Ignition, as Fedora CoreOS does, or cloud-init's user data, which it gets now; say which with "+
				"userData: ignition or userData: cloud-init", yamldoc.Quote(name))
	case o.UserData == UserDataIgnition && o.Image == StickImage:
		r.Report(path+".userData", "%s reads cloud-init's; remove the line", StickImage)
	}
}

// splitWords splits a file's name where its words end.
func splitWords(name string) []string {
	return strings.FieldsFunc(name, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
}

func hasSuffix(s string, suffixes ...string) bool {
	return slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(s, suffix) })
}

// checkIgnitionNodes refuses clusters on nodes whose images read Ignition: what makes them installs Debian's packages,
// and Cluster API's machines are told by cloud-init.
func (r *reader) checkIgnitionNodes(s *Site) {
	reads := map[string]Name{} // by name and MAC
	for _, n := range s.WithDefaults().Nodes {
		if n.OS.UserData != UserDataIgnition {
			continue
		}
		reads[string(n.Name)] = n.Name
		for _, m := range n.macs() {
			reads[string(m)] = n.Name
		}
	}
	delete(reads, "")

	for i, c := range s.Clusters {
		check := func(role string, members []NodeSelector) {
			for j, m := range members {
				name, found := reads[cmp.Or(string(m.Node), string(m.MAC))]
				if !found {
					continue
				}
				r.refuse(
					fmt.Sprintf("clusters[%d].%s[%d]", i, role, j),
					refusal{reason: ignitionCluster, of: string(name)}, 0,
					"the image of %s reads Ignition, and clusters are made of Debian nodes with cloud-init; "+
						"use another node, or another image", name,
				)
			}
		}
		check("controlPlane", c.ControlPlane)
		check("workers", c.Workers)
	}
}
