package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// systemTrust is what decides on Debian whom all programs trust: curl and apt among them.
var systemTrust = []string{"ca-certificates/", "update-ca-certificates", "/etc/ssl/", "trusted.gpg"}

// systemTrustUses are the files that may name it, each with what it does there.
var systemTrustUses = map[string]string{
	"daemon/clusters/installer/distrust.go":                        "takes back what earlier versions wrote",
	"daemon/metal/authority/authority.go":                          "waits for nodes of earlier versions",
	"daemon/metal/ironic/config.go":                                "Ironic checks the servers of other people's images",
	"overlays/ramdisk/usr/lib/python3/dist-packages/firstlight.py": "knows disks of earlier versions",
}

// TestNothingIsTrustedForAllPurposes: the appliance's authority is named to each program that needs it, and the key of
// packages to each source of apt.
func TestNothingIsTrustedForAllPurposes(t *testing.T) {
	found := map[string]bool{}
	for _, room := range []string{"daemon", "overlays", "cmd"} {
		root := filepath.Join("../..", room)
		require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || strings.HasSuffix(p, "_test.go") || strings.Contains(p, "/testdata/") {
				return err
			}

			text, err := os.ReadFile(p)
			rel, _ := filepath.Rel("../..", p)
			for _, name := range systemTrust {
				if strings.Contains(string(text), name) {
					found[filepath.ToSlash(rel)] = true
				}
			}
			return err
		}))
	}

	for file := range found {
		assert.Contains(t, systemTrustUses, file, "%s changes or uses what a whole system trusts", file)
	}
	for file := range systemTrustUses {
		assert.True(t, found[file], "%s is not to be on the list any more", file)
	}
}
