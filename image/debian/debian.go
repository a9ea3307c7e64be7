// Package debian makes file trees of Debian packages. apt resolves names to versions
// and digests, in a directory of its own and without root; what is built comes from
// those digests alone, through a local repository that holds nothing else.
package debian

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Keyring is Debian's archive keyring, of package debian-archive-keyring.
const Keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Package is one resolved .deb.
type Package struct {
	Name    string
	Version string
	Arch    string // amd64 or all
	Section string
	Size    int64
	SHA256  string // 64 hex digits
	Path    string // archive/pool path: debian/pool/... or debian-security/pool/...
}

// Mirror is where .debs come from: base URLs without a slash at the end.
type Mirror struct {
	Debian   string
	Security string
}

// URL is where a package is on this mirror.
func (m Mirror) URL(p Package) string {
	if rest, ok := strings.CutPrefix(p.Path, "debian-security/"); ok {
		return m.Security + "/" + rest
	}
	return m.Debian + "/" + strings.TrimPrefix(p.Path, "debian/")
}

// FindMirror makes a Mirror of the base URL of a Debian archive; its security archive
// is beside it with "-security" at the end of the name, as everywhere. Without a URL it
// is the mirror that this machine's own apt uses.
func FindMirror(ctx context.Context, url string) (Mirror, error) {
	if url != "" {
		base := strings.TrimRight(url, "/")
		return Mirror{Debian: base, Security: base + "-security"}, nil
	}

	out, err := runCommand(ctx, nil, "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return Mirror{}, fmt.Errorf("find the Debian mirror of this machine: %w; name one with --mirror", err)
	}

	return mirrorOf(strings.Fields(out))
}

// mirrorOf picks Debian's two archives out of the repositories of a machine.
func mirrorOf(repositories []string) (Mirror, error) {
	var m Mirror
	for _, uri := range repositories {
		base := strings.TrimRight(uri, "/")
		switch {
		case strings.HasSuffix(base, "/debian-security") && m.Security == "":
			m.Security = base
		case strings.HasSuffix(base, "/debian") && m.Debian == "":
			m.Debian = base
		}
	}

	if m.Debian == "" {
		return m, fmt.Errorf("find the Debian mirror of this machine: its apt has no source that ends in /debian; name one with --mirror")
	}

	if m.Security == "" {
		m.Security = m.Debian + "-security"
	}

	return m, nil
}

// runCommand runs a program and returns what it printed; an error carries what it
// complained of. The environment is the caller's with LC_ALL=C and env.
func runCommand(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C.UTF-8", "TZ=UTC"), env...)
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w: %s", name, err, SummarizeComplaints(complaints.String()))
	}

	return out.String(), nil
}

// SummarizeComplaints keeps what matters of what a program complained of: its errors, else its last lines.
func SummarizeComplaints(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	bad := slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
		return !strings.HasPrefix(l, "E: ") && !strings.Contains(l, "error:")
	})
	if len(bad) > 0 {
		lines = bad
	}

	if len(lines) > 5 {
		lines = lines[len(lines)-5:]
	}

	return strings.Join(lines, " | ")
}
