package sbom_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/image/sbom"
)

func TestDocument(t *testing.T) {
	text, err := sbom.Encode(sbom.Image{Name: "firstlight", Version: "1.0", SHA256: strings.Repeat("a", 64), Epoch: 1700000000}, []sbom.Package{
		sbom.ModulePackage("golang.org/x/sys", "v0.1.0", "BSD-3-Clause", "in firstlightd"),
		sbom.DebianPackage("zlib1g", "1:1.3+dfsg", "amd64", strings.Repeat("b", 64), "Zlib AND LicenseRef-Debian-odd", "in appliance"),
		sbom.ModulePackage("golang.org/x/sys", "v0.1.0", "BSD-3-Clause", "in firstlightd"),
	})
	require.NoError(t, err)
	goldentest.Check(t, "testdata/document.json", text)
}

func TestDebianLicense(t *testing.T) {
	const head = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
	for name, c := range map[string]struct{ text, want string }{
		"free text":         {"This package is under the GPL.", sbom.NoAssertion},
		"no licence":        {head + "Files: *\n", sbom.NoAssertion},
		"one":               {head + "Files: *\nLicense: GPL-2+\n text\n", "GPL-2.0-or-later"},
		"same twice":        {head + "License: Expat\n\nLicense: MIT\n", "MIT"},
		"several files":     {head + "License: Expat\n\nLicense: BSD-3-clause\n", "BSD-3-Clause AND MIT"},
		"choice":            {head + "License: GPL-1+ or Artistic\n\nLicense: Expat\n", "(GPL-1.0-or-later OR Artistic-1.0-Perl) AND MIT"},
		"both":              {head + "License: GPL-2+ and Expat\n", "(GPL-2.0-or-later AND MIT)"},
		"exception":         {head + "License: GPL-3+ with autoconf exception\n", "GPL-3.0-or-later"},
		"without SPDX name": {head + "License: Odd licence/2\n", "LicenseRef-Debian-Odd-licence-2"},
	} {
		assert.Equal(t, c.want, sbom.DebianLicense([]byte(c.text)), name)
	}
}

const isc = `Permission to use, copy, modify, and/or distribute this software for any
purpose with or without fee is hereby granted, provided that the above
copyright notice and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES
WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF
MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY
SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES
WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION
OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN
CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE.
`

func TestModuleLicense(t *testing.T) {
	assert.Equal(t, "ISC", sbom.ModuleLicense(fstest.MapFS{"LICENSE.txt": {Data: []byte(isc)}, "main.go": {Data: []byte("package main")}}))
	assert.Equal(t, sbom.NoAssertion, sbom.ModuleLicense(fstest.MapFS{"LICENSE": {Data: []byte("All rights are ours.")}}))
	assert.Equal(t, sbom.NoAssertion, sbom.ModuleLicense(fstest.MapFS{"license/x": {Data: []byte(isc)}}))
}

func FuzzDebianLicense(f *testing.F) {
	f.Add("copyright-format\nLicense: GPL-2+ or (Artistic and X) with y\n")
	f.Fuzz(func(t *testing.T, text string) {
		got := sbom.DebianLicense([]byte(text))
		assert.NotEmpty(t, got)
		assert.NotContains(t, got, "\n")
	})
}

// A licence that no one else has is named after the package whose copyright file gives it.
func TestFirmwareHasALicence(t *testing.T) {
	text := []byte("This package was debianized by someone.\n\nRedistribution and use in binary form are permitted.\n")
	assert.Equal(t, "LicenseRef-Debian-intel-microcode", sbom.PackageLicense("intel-microcode", "non-free-firmware/admin", text))
	assert.Equal(t, sbom.NoAssertion, sbom.PackageLicense("tool", "admin", text))
}
