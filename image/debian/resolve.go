package debian

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Archive is a suite with its updates and security updates, as apt sees it from a
// private directory.
type Archive struct {
	dir    string
	config string
	Date   time.Time // of the newest index
}

// Open fetches and verifies the indexes of a suite for amd64 into dir, which it may
// have filled before.
func Open(ctx context.Context, dir, suite string, components []string, mirror Mirror) (*Archive, error) {
	if _, err := os.Stat(Keyring); err != nil {
		return nil, fmt.Errorf("open Debian %s: %w; install debian-archive-keyring", suite, err)
	}

	a := &Archive{dir: dir, config: filepath.Join(dir, "apt.conf")}
	for _, sub := range []string{"state/lists/partial", "cache/archives/partial", "etc/apt.conf.d", "etc/preferences.d", "log"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("open Debian %s: %w", suite, err)
		}
	}

	var sources strings.Builder
	for _, source := range [][2]string{{mirror.Debian, suite}, {mirror.Debian, suite + "-updates"}, {mirror.Security, suite + "-security"}} {
		fmt.Fprintf(
			&sources, "deb [arch=amd64 signed-by=%s] %s %s %s\n", Keyring, source[0], source[1],
			strings.Join(components, " "),
		)
	}

	config := fmt.Sprintf(`Dir "%[1]s/";
Dir::State "state";
Dir::State::status "%[1]s/status";
Dir::Cache "cache";
Dir::Etc "etc";
Dir::Etc::parts "apt.conf.d";
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::trusted "/nonexistent";
Dir::Etc::trustedparts "/nonexistent";
Dir::Log "%[1]s/log";
APT::Architecture "amd64";
#clear APT::Architectures;
APT::Architectures { "amd64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
`, dir)
	for name, text := range map[string]string{"status": "", "sources.list": sources.String(), "apt.conf": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("open Debian %s: %w", suite, err)
		}
	}

	if _, err := a.runApt(ctx, "apt-get", "update", "--error-on=any"); err != nil {
		return nil, fmt.Errorf("open Debian %s: %w", suite, err)
	}

	return a, a.readDate()
}

func (a *Archive) runApt(ctx context.Context, name string, args ...string) (string, error) {
	return runCommand(ctx, []string{"APT_CONFIG=" + a.config}, name, args...)
}

// readDate finds the newest Date of the signed indexes.
func (a *Archive) readDate() error {
	files, err := filepath.Glob(filepath.Join(a.dir, "state/lists/*InRelease"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("open Debian: no signed index in %s", a.dir)
	}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("open Debian: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			value, ok := strings.CutPrefix(line, "Date: ")
			if !ok {
				continue
			}

			date, err := time.Parse(time.RFC1123, strings.TrimSpace(value))
			if err != nil {
				return fmt.Errorf("open Debian: read date of %s: %w", file, err)
			}

			if date.After(a.Date) {
				a.Date = date
			}
		}
	}

	return nil
}

// Request is what a tree wants.
type Request struct {
	Essential bool     // Debian's essential packages too
	Packages  []string // and what they depend on
	Alone     []string // without what they depend on
}

var instLine = regexp.MustCompile(`^Inst (\S+) (?:\[\S+\] )?\((\S+) .*\[(\S+)\]`)

// Resolve turns names into packages, sorted by name.
func (a *Archive) Resolve(ctx context.Context, ask Request) ([]Package, error) {
	names := slices.Clone(ask.Packages)
	if ask.Essential {
		names = append([]string{"?essential"}, names...)
	}

	var wanted []string // name=version
	if len(names) > 0 {
		out, err := a.runApt(ctx, "apt-get", append([]string{"--simulate", "--yes", "install"}, names...)...)
		if err != nil {
			return nil, fmt.Errorf("resolve packages: %w", err)
		}
		for line := range strings.Lines(out) {
			if m := instLine.FindStringSubmatch(line); m != nil {
				name, _, _ := strings.Cut(m[1], ":")
				wanted = append(wanted, name+"="+m[2])
			}
		}
	}

	for _, name := range ask.Alone {
		out, err := a.runApt(ctx, "apt-cache", "show", "--no-all-versions", name)
		if err != nil {
			return nil, fmt.Errorf("resolve package %s: %w", name, err)
		}

		found, err := parseStanzas(out)
		if err != nil || len(found) == 0 {
			return nil, fmt.Errorf("resolve package %s: apt knows no such package (%v)", name, err)
		}

		wanted = append(wanted, name+"="+found[0].Version)
	}

	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	if len(wanted) == 0 {
		return nil, nil
	}

	out, err := a.runApt(ctx, "apt-cache", append([]string{"show"}, wanted...)...)
	if err != nil {
		return nil, fmt.Errorf("resolve packages: %w", err)
	}

	found, err := parseStanzas(out)
	if err != nil {
		return nil, err
	}

	return pickStanzas(wanted, found)
}

// pickStanzas takes one stanza for every wanted name=version.
func pickStanzas(wanted []string, found []Package) ([]Package, error) {
	byName := map[string]Package{}
	for _, p := range found {
		byName[p.Name+"="+p.Version] = p
	}

	var picked []Package
	for _, w := range wanted {
		p, ok := byName[w]
		if !ok {
			return nil, fmt.Errorf("resolve package %s: apt shows no such version", w)
		}
		picked = append(picked, p)
	}

	return picked, nil
}

// parseStanzas reads what `apt-cache show` prints.
func parseStanzas(text string) ([]Package, error) {
	var all []Package
	var p Package
	flush := func() error {
		if p.Name == "" {
			return nil
		}
		if len(p.SHA256) != 64 || p.Path == "" || p.Size == 0 {
			return fmt.Errorf("resolve package %s: the index gives no SHA256, Filename or Size", p.Name)
		}

		archive := "debian/"
		if strings.HasPrefix(p.Path, "pool/updates/") {
			archive = "debian-security/"
		}

		p.Path = archive + p.Path
		all = append(all, p)
		p = Package{}
		return nil
	}
	scanner := bufio.NewScanner(strings.NewReader(text))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		key, value, _ := strings.Cut(scanner.Text(), ": ")
		switch key {
		case "":
			if err := flush(); err != nil {
				return nil, err
			}
		case "Package":
			p.Name = value
		case "Version":
			p.Version = value
		case "Architecture":
			p.Arch = value
		case "Section":
			p.Section = value
		case "Filename":
			p.Path = value
		case "SHA256":
			p.SHA256 = value
		case "Size":
			size, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("resolve package %s: size %q is not a number", p.Name, value)
			}
			p.Size = size
		}
	}

	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("resolve packages: %w", err)
	}

	return all, flush()
}
