// Package sbom writes the list of what an image is made of: every Debian package and
// every Go module with version, digest and licence, as SPDX 2.3 JSON
// (https://spdx.github.io/spdx-spec/v2.3/). Equal inputs give equal bytes.
package sbom

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// NoAssertion says that nobody found out (SPDX 2.3, clause 7.13).
const NoAssertion = "NOASSERTION"

// Package is one part: a Debian package or a Go module.
type Package struct {
	Name    string
	Version string
	PURL    string // pkg:deb/debian/name@version or pkg:golang/path@version
	SHA256  string // of the package file; empty when unknown
	License string // SPDX expression or NoAssertion
	Note    string // where in the image it is
}

// Image is what the parts are in.
type Image struct {
	Name    string
	Version string
	SHA256  string
	Epoch   int64  // seconds since 1970
	Tool    string // version of firstlight; Version if ""
	Purpose string // what it is to SPDX; OPERATING-SYSTEM if ""
}

// DebianPackage makes the entry of a Debian package.
func DebianPackage(name, version, arch, sha256, license, note string) Package {
	return Package{
		Name:    name,
		Version: version,
		PURL:    fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", name, escape(version), arch),
		SHA256:  sha256,
		License: license,
		Note:    note,
	}
}

// ModulePackage makes the entry of a Go module.
func ModulePackage(path, version, license, note string) Package {
	return Package{
		Name:    path,
		Version: version,
		PURL:    "pkg:golang/" + path + "@" + escape(version),
		License: license,
		Note:    note,
	}
}

// ImagePackage makes the entry of a container image; digest is sha256:HEX, of its manifest.
func ImagePackage(name, digest, tag string) Package {
	base := name[strings.LastIndex(name, "/")+1:]
	return Package{
		Name:    name,
		Version: tag,
		PURL:    "pkg:oci/" + base + "@" + escape(digest) + "?arch=amd64&repository_url=" + name + "&tag=" + escape(tag),
		License: NoAssertion,
		Note:    digest,
	}
}

// escape writes what a package URL does not take literally (purl specification).
func escape(version string) string {
	return strings.NewReplacer("+", "%2B", ":", "%3A").Replace(version)
}

type document struct {
	Version       string             `json:"spdxVersion"`
	DataLicense   string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      creation           `json:"creationInfo"`
	Packages      []entry            `json:"packages"`
	Relationships []relationship     `json:"relationships"`
	Licenses      []extractedLicense `json:"hasExtractedLicensingInfos,omitempty"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type entry struct {
	ID        string     `json:"SPDXID"`
	Name      string     `json:"name"`
	Version   string     `json:"versionInfo"`
	Location  string     `json:"downloadLocation"`
	Analyzed  bool       `json:"filesAnalyzed"`
	Concluded string     `json:"licenseConcluded"`
	Declared  string     `json:"licenseDeclared"`
	Copyright string     `json:"copyrightText"`
	Purpose   string     `json:"primaryPackagePurpose,omitempty"`
	Comment   string     `json:"comment,omitempty"`
	Checksums []checksum `json:"checksums,omitempty"`
	Refs      []ref      `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type ref struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

type extractedLicense struct {
	ID   string `json:"licenseId"`
	Text string `json:"extractedText"`
}

var idChars = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// spdxID makes an identifier that stays unique though characters are replaced.
func spdxID(kind, name, version string) string {
	sum := sha1.Sum([]byte(kind + name + "@" + version))
	return "SPDXRef-" + kind + "-" + idChars.ReplaceAllString(name, "-") + "-" + hex.EncodeToString(sum[:4])
}

// Encode writes the document.
func Encode(image Image, packages []Package) ([]byte, error) {
	const root = "SPDXRef-Image"
	doc := document{
		Version:     "SPDX-2.3",
		DataLicense: "CC0-1.0",
		ID:          "SPDXRef-DOCUMENT",
		Name:        image.Name + "-" + image.Version,
		Namespace:   "https://firstlight.internal/spdx/" + image.Name + "-" + image.SHA256,
		Creation: creation{
			Created:  time.Unix(image.Epoch, 0).UTC().Format(time.RFC3339),
			Creators: []string{"Tool: firstlight-" + cmp.Or(image.Tool, image.Version)},
		},
	}
	doc.Packages = append(doc.Packages, entry{
		ID:        root,
		Name:      image.Name,
		Version:   image.Version,
		Location:  "NONE",
		Concluded: NoAssertion,
		Declared:  NoAssertion,
		Copyright: NoAssertion,
		Purpose:   cmp.Or(image.Purpose, "OPERATING-SYSTEM"),
		Checksums: []checksum{{"SHA256", image.SHA256}},
	})
	doc.Relationships = append(doc.Relationships, relationship{doc.ID, "DESCRIBES", root})
	sorted := slices.Clone(packages)
	slices.SortFunc(sorted, func(a, b Package) int { return strings.Compare(a.PURL, b.PURL) })
	sorted = slices.CompactFunc(sorted, func(a, b Package) bool { return a.PURL == b.PURL })
	refs := map[string]bool{}
	for _, p := range sorted {
		kind := "Deb"
		switch {
		case strings.HasPrefix(p.PURL, "pkg:golang/"):
			kind = "Go"
		case strings.HasPrefix(p.PURL, "pkg:oci/"):
			kind = "Image"
		}

		e := entry{
			ID:        spdxID(kind, p.Name, p.Version),
			Name:      p.Name,
			Version:   p.Version,
			Location:  NoAssertion,
			Concluded: NoAssertion,
			Declared:  p.License,
			Copyright: NoAssertion,
			Comment:   p.Note,
			Refs:      []ref{{"PACKAGE-MANAGER", "purl", p.PURL}},
		}
		if p.SHA256 != "" {
			e.Checksums = []checksum{{"SHA256", p.SHA256}}
		}

		for _, word := range regexp.MustCompile(`LicenseRef-[A-Za-z0-9.-]+`).FindAllString(p.License, -1) {
			refs[word] = true
		}

		doc.Packages = append(doc.Packages, e)
		doc.Relationships = append(doc.Relationships, relationship{root, "CONTAINS", e.ID})
	}

	for word := range refs {
		doc.Licenses = append(doc.Licenses, extractedLicense{
			ID:   word,
			Text: "As named in the package's debian/copyright: " + strings.TrimPrefix(word, "LicenseRef-Debian-"),
		})
	}

	slices.SortFunc(doc.Licenses, func(a, b extractedLicense) int { return strings.Compare(a.ID, b.ID) })
	text, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return nil, fmt.Errorf("write SBOM: %w", err)
	}

	return append(text, '\n'), nil
}
