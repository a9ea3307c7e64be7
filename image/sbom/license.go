package sbom

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// known maps the short names of machine-readable debian/copyright files (Debian policy,
// copyright-format 1.0, section 7.1) to SPDX identifiers, lower case.
var known = map[string]string{
	"expat": "MIT", "mit": "MIT", "mit/x11": "X11", "x11": "X11", "isc": "ISC", "zlib": "Zlib",
	"apache-2.0": "Apache-2.0", "apache-2": "Apache-2.0",
	"bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause", "bsd-4-clause": "BSD-4-Clause",
	"gpl-1": "GPL-1.0-only", "gpl-1+": "GPL-1.0-or-later", "gpl-2": "GPL-2.0-only", "gpl-2+": "GPL-2.0-or-later",
	"gpl-2.0": "GPL-2.0-only", "gpl-2.0+": "GPL-2.0-or-later", "gpl-3": "GPL-3.0-only", "gpl-3+": "GPL-3.0-or-later",
	"gpl-3.0": "GPL-3.0-only", "gpl-3.0+": "GPL-3.0-or-later",
	"lgpl-2": "LGPL-2.0-only", "lgpl-2+": "LGPL-2.0-or-later", "lgpl-2.0": "LGPL-2.0-only", "lgpl-2.0+": "LGPL-2.0-or-later",
	"lgpl-2.1": "LGPL-2.1-only", "lgpl-2.1+": "LGPL-2.1-or-later", "lgpl-3": "LGPL-3.0-only", "lgpl-3+": "LGPL-3.0-or-later",
	"gfdl-1.3": "GFDL-1.3-only", "gfdl-1.3+": "GFDL-1.3-or-later", "mpl-2.0": "MPL-2.0", "mpl-1.1": "MPL-1.1",
	"artistic": "Artistic-1.0-Perl", "artistic-2.0": "Artistic-2.0", "cc0-1.0": "CC0-1.0", "psf-2": "Python-2.0",
	"unlicense": "Unlicense", "curl": "curl", "openssl": "OpenSSL", "public-domain": "LicenseRef-Debian-public-domain",
}

var licenseChars = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// DebianLicense reads the licences that a debian/copyright file names, as one SPDX
// expression: all of them hold for some file. A file that is not machine-readable gives
// NoAssertion; a licence without an SPDX identifier becomes a LicenseRef.
func DebianLicense(copyright []byte) string {
	text := string(copyright)
	if !strings.Contains(text[:min(len(text), 500)], "copyright-format") {
		return NoAssertion
	}

	var all []string
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(line, "License:")
		if !ok {
			continue
		}
		if expression := debianExpression(value); expression != "" && !slices.Contains(all, expression) {
			all = append(all, expression)
		}
	}

	if len(all) == 0 {
		return NoAssertion
	}

	slices.Sort(all)
	for i, expression := range all {
		if strings.Contains(expression, " OR ") && len(all) > 1 {
			all[i] = "(" + expression + ")"
		}
	}

	return strings.Join(all, " AND ")
}

// PackageLicense is DebianLicense of a package of a section. Firmware has its maker's own licence, which a file that is
// not machine-readable gives in full: it is named after the package, whose copyright file has it.
func PackageLicense(name, section string, copyright []byte) string {
	license := DebianLicense(copyright)
	if license == NoAssertion && strings.HasPrefix(section, "non-free-firmware/") {
		return spdxName(name)
	}
	return license
}

// debianExpression turns "GPL-2+ or Artistic" into "GPL-2.0-or-later OR Artistic-1.0-Perl".
func debianExpression(value string) string {
	value = strings.TrimSpace(strings.ReplaceAll(value, ",", " "))
	value, _, _ = strings.Cut(value, " with ") // exceptions only allow more
	var alternatives []string
	for _, choice := range regexp.MustCompile(`(?i)\s+or\s+|\s*\|\s*`).Split(value, -1) {
		var parts []string
		for _, part := range regexp.MustCompile(`(?i)\s+and(?:/or)?\s+`).Split(choice, -1) {
			if name := spdxName(strings.Trim(strings.TrimSpace(part), "()")); name != "" {
				parts = append(parts, name)
			}
		}

		if len(parts) > 1 {
			parts = []string{"(" + strings.Join(parts, " AND ") + ")"}
		}

		alternatives = append(alternatives, parts...)
	}

	return strings.Join(alternatives, " OR ")
}

func spdxName(name string) string {
	if name == "" {
		return ""
	}
	if id, ok := known[strings.ToLower(name)]; ok {
		return id
	}
	return "LicenseRef-Debian-" + strings.Trim(licenseChars.ReplaceAllString(name, "-"), "-")
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)

// ModuleLicense recognises the licence files at the top of a module's directory, as one
// SPDX expression; NoAssertion when there is none that is known with certainty.
func ModuleLicense(module fs.FS) string {
	entries, err := fs.ReadDir(module, ".")
	if err != nil {
		return NoAssertion
	}

	var found []string
	for _, entry := range entries {
		if entry.IsDir() || !licenseFile.MatchString(entry.Name()) {
			continue
		}

		text, err := fs.ReadFile(module, entry.Name())
		if err != nil {
			continue
		}

		coverage := licensecheck.Scan(text)
		if coverage.Percent < 60 {
			continue
		}

		for _, match := range coverage.Match {
			if !match.IsURL && !slices.Contains(found, match.ID) {
				found = append(found, match.ID)
			}
		}
	}

	if len(found) == 0 {
		return NoAssertion
	}

	slices.Sort(found)
	return strings.Join(found, " AND ")
}
