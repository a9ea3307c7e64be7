package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/assets/site"
)

// clusters is where installers of clusters have their directories.
const clusters = "/opt/kud/multi-cluster"

// collected are files and folders, below the root, that are taken as they are; a * is any name.
var collected = []string{
	"/run/firstlight/boot.json", "/run/firstlight/storage.json", "/run/firstlight/damage", "/run/firstlight/wire.json",
	"/run/firstlight/registry/addresses", "/run/firstlight/registry/known", "/run/firstlight/registry/owners",
	"/var/lib/firstlight/journal.json", "/var/lib/firstlight/journal.json.unreadable", "/var/lib/firstlight/networks.json",
	"/var/lib/firstlight/hosts", "/var/lib/firstlight/dhcp",
	"/var/lib/firstlight/audit", "/var/lib/firstlight/artifacts/audit",
	clusters + "/*/log", clusters + "/*/progress.json", clusters + "/*/hosts.ini", clusters + "/*/cluster.json", clusters + "/*/installed.json",
	clusters + "/*/artifacts/verification.json",
	"/var/lib/ironic/log", "/var/log/pods", "/var/log/units",
	"/etc/os-release", "/etc/machine-id", "/etc/resolv.conf", "/etc/kubernetes/manifests", "/var/lib/kubelet/config.yaml",
	"/proc/cmdline", "/proc/meminfo", "/proc/mounts", "/proc/uptime", "/proc/loadavg", "/proc/version",
}

func (c *Collector) collectFiles(context.Context) error {
	for _, place := range c.expandPaths(collected) {
		top := c.path(place)
		if _, err := os.Lstat(top); err != nil {
			c.addIndexLine("files"+place, "missing: "+err.Error())
			continue
		}

		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}

			name := "files/" + strings.TrimPrefix(strings.TrimPrefix(path, c.path("/")), "/")
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
				return nil // a link of the kubelet's to a pod that is gone, a socket
			}

			return c.addFile(name, path)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// expandPaths are paths with every * replaced by what is there. One with a * that nothing answers to is left
// out: most appliances have no cluster yet.
func (c *Collector) expandPaths(patterns []string) (all []string) {
	for _, p := range patterns {
		if !strings.Contains(p, "*") {
			all = append(all, p)
			continue
		}
		found, _ := filepath.Glob(c.path(p))
		for _, f := range found {
			all = append(all, "/"+strings.TrimPrefix(strings.TrimPrefix(f, c.path("/")), "/"))
		}
	}
	return all
}

// addFile adds one file; archives are unpacked, because nothing could be hidden inside them.
func (c *Collector) addFile(name, path string) error {
	switch {
	case strings.HasSuffix(path, ".tar.gz"):
		return c.addArchive(name, path)
	case strings.HasSuffix(path, ".gz"):
		text, err := gunzip(path)
		return c.add(strings.TrimSuffix(name, ".gz"), text, err)
	}

	text, err := tail(path)
	if err == nil && !isText(text) {
		c.addIndexLine(name, "left out: it is no text")
		return nil
	}

	return c.add(name, text, err)
}

func gunzip(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}

	return io.ReadAll(io.LimitReader(z, fileLimit))
}

// addArchive adds the files of a ramdisk's log.
func (c *Collector) addArchive(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		c.addIndexLine(name, "missing: "+err.Error())
		return nil
	}
	defer f.Close()

	z, err := gzip.NewReader(f)
	if err != nil {
		c.addIndexLine(name, "torn: "+err.Error())
		return nil
	}

	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			c.addIndexLine(name, "torn: "+err.Error())
			return nil
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}

		// The name comes from a ramdisk: no way out of the folder, nothing that is not printable.
		inside := strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '_'
			}
			return r
		}, filepath.Clean("/"+header.Name))
		text, err := io.ReadAll(io.LimitReader(r, fileLimit))
		if !isText(text) {
			c.addIndexLine(name+inside, "left out: it is no text")
			continue
		}
		if err := c.add(strings.TrimSuffix(name, ".tar.gz")+inside, text, err); err != nil {
			return err
		}
	}
}

func isText(b []byte) bool { return bytes.IndexByte(b[:min(len(b), 8192)], 0) < 0 }

// collectSites adds the documents with their secrets hidden, with their mistakes. A text that is no YAML is left
// out: any place in it may be a password's.
func (c *Collector) collectSites(context.Context) error {
	for _, path := range sites {
		text, err := tail(c.path(path))
		if err == nil {
			clean, _, wrong := site.Redact(text)
			if wrong != nil {
				c.addIndexLine(
					"files"+path, fmt.Sprintf("left out: its secrets cannot be told from the rest: %s", wrong),
				)
				continue
			}
			text = clean
		}
		if err := c.add("files"+path, text, err); err != nil {
			return err
		}
	}
	return nil
}
