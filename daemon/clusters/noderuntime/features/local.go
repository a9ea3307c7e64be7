package features

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"
)

// LocalDir is where a machine's owner, or another program, says what it has (NFD, "Local source").
const LocalDir = "etc/kubernetes/node-feature-discovery/features.d"

// maxLocal is the size of a file that is read, in bytes, as in NFD.
const maxLocal = 64 << 10

// What a label's name and value may be (Kubernetes, "Labels and Selectors").
var (
	nameForm   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	domainForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

// Local returns the labels of the files in LocalDir, and a line for each thing in them that is no label. A line of a file
// is NAME or NAME=VALUE; "# +expiry-time=" and a time (RFC 3339) end what follows; files that begin with a dot are not
// read.
func Local(root fs.FS, now time.Time) (all map[string]string, wrong []string) {
	all = map[string]string{}
	entries, err := fs.ReadDir(root, LocalDir)
	if err != nil {
		return all, nil
	}

	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}

		text, err := fs.ReadFile(root, path.Join(LocalDir, e.Name()))
		switch {
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("%s: %v", e.Name(), err))
		case len(text) > maxLocal:
			wrong = append(wrong, fmt.Sprintf("%s: it has more than %d KiB", e.Name(), maxLocal>>10))
		default:
			wrong = append(wrong, readLocal(e.Name(), string(text), now, all)...)
		}
	}

	return all, wrong
}

func readLocal(file, text string, now time.Time, all map[string]string) (wrong []string) {
	var until time.Time
	nr := 0
	for line := range strings.Lines(text) {
		nr++
		line = strings.TrimSpace(line)
		if at, ok := strings.CutPrefix(line, "# +expiry-time="); ok {
			t, err := time.Parse(time.RFC3339, strings.TrimSpace(at))
			if err != nil {
				wrong = append(wrong, fmt.Sprintf("%s:%d: %q is no time of RFC 3339", file, nr, at))
				continue
			}
			until = t
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") || !until.IsZero() && now.After(until) {
			continue
		}

		name, value, ok := strings.Cut(line, "=")
		if !ok {
			value = "true"
		}
		if name, value = strings.TrimSpace(name), strings.TrimSpace(value); !isLabel(name, value) {
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s=%s is no label of this source", file, nr, name, value))
			continue
		}
		all[name] = value
	}

	return wrong
}

// isLabel reports whether a name, with a domain or without, and a value may become a label. Domains of Kubernetes are not
// the machine's to write, but for those of features and profiles.
func isLabel(name, value string) bool {
	if domain, rest, ok := strings.Cut(name, "/"); ok {
		if !domainForm.MatchString(domain) || !isOwnDomain(domain) {
			return false
		}
		name = rest
	}
	return nameForm.MatchString(name) && (value == "" || nameForm.MatchString(value))
}

func isOwnDomain(domain string) bool {
	for _, own := range []string{"feature.node.kubernetes.io", "profile.node.kubernetes.io"} {
		if domain == own || strings.HasSuffix(domain, "."+own) {
			return true
		}
	}
	return domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}
