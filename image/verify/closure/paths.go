package closure

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// findLinks wants every symbolic link in a directory of programs, that pulls in a unit, or
// made by us, to lead somewhere. Links into what exists only while running are left alone.
func findLinks(t *Tree) ([]Miss, error) {
	var out []Miss
	for _, name := range t.names {
		n := t.nodes[name]
		if n.mode&fs.ModeSymlink == 0 {
			continue
		}

		dir := path.Dir(name)
		if dir != "/usr/bin" && dir != "/usr/sbin" && path.Ext(dir) != ".wants" && path.Ext(dir) != ".requires" && !isOurs(name) {
			continue
		}

		if to, ok := t.Resolve(name); !ok && !isRuntimePath(to) {
			out = append(out, Miss{name, fmt.Sprintf("link to %s, which is not in the root", n.link)})
		}
	}
	return out, nil
}

// isRuntimePath says whether a path comes into being only on the running machine.
func isRuntimePath(name string) bool {
	for _, top := range []string{"/run", "/var", "/proc", "/sys", "/dev", "/tmp", "/mnt", "/root", "/home", "/etc/firstlight", "/etc/kubernetes", "/etc/cni", "/opt/cni"} {
		if name == top || strings.HasPrefix(name, top+"/") {
			return true
		}
	}
	return false
}

// absolutePath finds paths in directories that the image fills. The character before must
// not make it the tail of something longer, such as an address or a variable's directory; an address of a file, as
// Documentation= of a unit has it, is one.
var absolutePath = regexp.MustCompile(`(?:^|[\s"'=:,\[(>@!+-]|file://)(/(?:usr|bin|sbin|lib|lib64|etc|opt|boot)/[A-Za-z0-9_./@%*?$\\{}+~-]+)`)

// findPaths wants every absolute path below /usr, /etc and the like that our units,
// scripts and settings name. Patterns and paths with variables cannot be decided and are
// left to the tests that run them.
func findPaths(t *Tree) ([]Miss, error) {
	lines, err := t.readLines(t.ownFiles())
	if err != nil {
		return nil, err
	}

	var out []Miss
	for _, l := range withoutDescriptions(lines) {
		if l.isComment() || isConditional(l.text) {
			continue
		}
		for _, m := range absolutePath.FindAllStringSubmatch(l.text, -1) {
			name := strings.TrimRight(m[1], ".:,")
			if strings.ContainsAny(name, `*?$%\{}`) || isRuntimePath(name) || t.Has(name) {
				continue
			}
			out = append(out, Miss{l.by, "path " + name + " is not in the root"})
		}
	}

	return out, nil
}

// isConditional says whether a line asks for a path rather than needing it.
func isConditional(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, "Condition") || strings.HasPrefix(text, "EnvironmentFile=-") ||
		strings.HasPrefix(text, "ReadWritePaths=-") || strings.HasPrefix(text, "InaccessiblePaths=")
}

var address = regexp.MustCompile(`\b(?:https?|ftp|tftp|nfs|oci|docker)://([^\s"'<>/:)\]]+|\[[0-9a-fA-F:]+\])`)

// findURLs wants no address outside the rack. Loopback, link-local and private addresses,
// names below .internal, .local, .svc and .example, variables, and the identifiers of
// schemas and licences, which nobody fetches, are not.
func findURLs(t *Tree) ([]Miss, error) {
	lines, err := t.readLines(t.ownFiles())
	if err != nil {
		return nil, err
	}

	var out []Miss
	for _, l := range withoutDescriptions(lines) {
		if l.isComment() || strings.Contains(l.text, "$schema") || strings.Contains(l.text, "Documentation=") ||
			strings.Contains(l.text, "description:") {
			continue
		}

		for _, m := range address.FindAllStringSubmatch(l.text, -1) {
			if !isInside(strings.ToLower(m[1])) {
				out = append(out, Miss{l.by, "address " + m[0] + " is outside the rack"})
			}
		}
	}

	return out, nil
}

// withoutDescriptions leaves out what people read of definitions: a description goes on with lines that are indented
// deeper, and with blank ones (YAML 1.2, 8.1.2 and 7.3).
func withoutDescriptions(lines []line) []line {
	var out []line
	description := -1 // indentation of the one that the line may belong to
	for _, l := range lines {
		text := strings.TrimLeft(l.text, " ")
		indent := len(l.text) - len(text)
		if description >= 0 && (indent > description || strings.TrimSpace(text) == "") {
			continue
		}

		description = -1
		if strings.HasPrefix(text, "description:") {
			description = indent
			continue
		}
		out = append(out, l)
	}
	return out
}

var privateHost = regexp.MustCompile(`^(\[.*\]|127\.|10\.|192\.168\.|172\.(1[6-9]|2[0-9]|3[01])\.|169\.254\.|0\.0\.0\.0|[^.]*$|.*[{}$%@])|\.(internal|local|svc|example|invalid|test)$`)

func isInside(host string) bool {
	return privateHost.MatchString(host) || host == "www.w3.org" || host == "spdx.org"
}
