package supportbundle

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/site"
)

// secretPlaces are the files and folders, below the root, in which the appliance keeps what
// is secret. Nothing in them is collected; all in them is searched for in what is.
var secretPlaces = []string{
	"/var/lib/firstlight/ca", "/var/lib/firstlight/secret", "/var/lib/firstlight/ssh",
	"/etc/kubernetes", "/var/lib/kubelet/pki", "/etc/ssh", "/run/secrets",
	clusters + "/*/artifacts/admin.conf",
	"/var/lib/kubelet/pods/*/volumes/kubernetes.io~*/*", // what pods were given: files, also when the API is down
}

// open are names of files, and of a Secret's keys, that lie beside secrets and are none.
var open = []string{"username", "namespace", "ca.crt", "tls.crt", "ca.pem", "cert.pem", "authorized_keys", "known_hosts"}

func isOpen(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains(open, name) || strings.HasSuffix(name, ".crt") || strings.HasSuffix(name, ".pub") ||
		strings.HasSuffix(name, "_config") || name == "moduli" || name == "ironic.conf"
}

// learnSecrets makes every secret of the appliance's files known. What cannot be read cannot be
// collected either.
func (c *Collector) learnSecrets() {
	for _, place := range c.expandPaths(secretPlaces) {
		_ = filepath.WalkDir(c.path(place), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
				return nil // a link of a mounted Secret leads to a file beside it
			}

			if text, err := os.ReadFile(path); err == nil {
				c.hide.AddNamed(d.Name(), string(text))
			}

			return nil
		})
	}
	for _, path := range sites {
		text, err := os.ReadFile(c.path(path))
		if err != nil {
			continue
		}

		_, secrets, err := site.Redact(text)
		for _, secret := range secrets {
			for line := range strings.Lines(secret) {
				c.hide.Add(line)
			}
		}

		if err == nil {
			continue
		}

		// It is no YAML: whatever a word announces.
		c.hide.addAnnounced(string(text))
	}
}

// sites are where the document may be.
var sites = []string{"/run/firstlight/site/site.yaml", "/usr/share/firstlight/site.yaml"}
