package closure

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// unitDirs are where systemd looks, the strongest first (systemd.unit(5)).
var unitDirs = [...]string{"/etc/systemd/system", "/usr/lib/systemd/system"}

// setting is one line of a unit.
type setting struct {
	by, key, value string
}

// unit is a unit with its drop-ins.
type unit struct {
	masked   bool
	ours     bool
	settings []setting
}

// findUnits starts at the targets that the machine boots to and follows what pulls units
// in. Of each unit reached it wants the programs, the units it requires and, for units of
// ours, also those it wants or orders itself after; a mistyped After= is a race, not a
// failure, and nothing else would find it. Optional units of Debian's packages may be
// absent, as systemd means it.
func findUnits(t *Tree) ([]Miss, error) {
	all := t.unitNames()
	var out []Miss
	seen := map[string]bool{}
	list := []string{"default.target", "sysinit.target", "basic.target", "multi-user.target", "sockets.target", "timers.target", "local-fs.target", "shutdown.target"}
	for name := range all {
		if isOurs("/" + name) {
			list = append(list, name)
		}
	}

	slices.Sort(list)
	for ; len(list) > 0; list = list[1:] {
		name := list[0]
		if seen[name] || !all[name] {
			continue
		}

		seen[name] = true
		u, err := t.readUnit(name)
		if err != nil {
			return nil, err
		}
		if u.masked {
			continue
		}

		list = append(list, t.wantedUnits(name)...)
		for _, s := range u.settings {
			for _, other := range strings.Fields(s.value) {
				switch s.key {
				case "Requires", "BindsTo", "Requisite":
					list = append(list, other)
					if !t.hasUnit(all, other) && !isGenerated(other) {
						out = append(out, Miss{s.by, fmt.Sprintf("%s=%s: no such unit", s.key, other)})
					}
				case "Wants", "Upholds", "After", "Before", "OnFailure", "Also":
					if s.key != "After" && s.key != "Before" {
						list = append(list, other)
					}
					if isOurs(s.by) && !t.hasUnit(all, other) && !isGenerated(other) {
						out = append(out, Miss{s.by, fmt.Sprintf("%s=%s: no such unit", s.key, other)})
					}
				}
			}
			if strings.HasPrefix(s.key, "Exec") {
				out = append(out, t.checkProgram(u, s)...)
			}
		}

		out = append(out, t.socketService(all, name)...)
	}

	return out, nil
}

// isGenerated says whether systemd makes the unit itself, from a device, a mount table, a slice
// or a template's instance that no file describes.
func isGenerated(name string) bool {
	switch path.Ext(name) {
	case ".device", ".slice", ".scope", ".mount", ".swap":
		return true
	}
	return strings.ContainsAny(name, "%$")
}

// checkProgram wants the file that an Exec line starts. A "-" says that its failure does not
// matter, and Debian's units use that for programs of other packages.
func (t *Tree) checkProgram(u unit, s setting) []Miss {
	fields := strings.Fields(s.value)
	if len(fields) == 0 {
		return nil
	}

	prefix := len(fields[0]) - len(strings.TrimLeft(fields[0], "@-:+!|"))
	optional := strings.Contains(fields[0][:prefix], "-")
	name := strings.Trim(fields[0][prefix:], `"`)
	if name == "" || strings.ContainsAny(name, "%$") || optional && !u.ours {
		return nil
	}

	if !path.IsAbs(name) {
		for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
			if t.Has(path.Join(dir, name)) {
				return nil
			}
		}
	}

	real, ok := t.Resolve(name)
	if !ok {
		return []Miss{{s.by, fmt.Sprintf("%s=%s: no such program", s.key, name)}}
	}
	if n := t.nodes[real]; !n.mode.IsRegular() || n.mode&0o111 == 0 {
		return []Miss{{s.by, fmt.Sprintf("%s=%s: not an executable file", s.key, name)}}
	}

	return nil
}

// unitNames lists every unit in both directories, aliases too.
func (t *Tree) unitNames() map[string]bool {
	all := map[string]bool{}
	for _, name := range t.names {
		for _, dir := range unitDirs {
			if path.Dir(name) == dir && t.nodes[name].mode&fs.ModeDir == 0 {
				all[path.Base(name)] = true
			}
		}
	}
	return all
}

// hasUnit also accepts the instance of a template.
func (t *Tree) hasUnit(all map[string]bool, name string) bool {
	if all[name] {
		return true
	}
	before, after, ok := strings.Cut(name, "@")
	return ok && all[before+"@"+path.Ext(after)]
}

// readUnit reads a unit's file and drop-ins.
func (t *Tree) readUnit(name string) (unit, error) {
	var u unit
	for _, dir := range unitDirs {
		file := path.Join(dir, name)
		n, ok := t.nodes[file]
		if !ok {
			continue
		}
		if n.link == "/dev/null" || n.mode.IsRegular() && n.size == 0 {
			u.masked = true
			return u, nil
		}
		if !t.Has(file) {
			continue // a dangling alias: findLinks and the package have to say
		}
		if err := t.readSettings(&u, file); err != nil {
			return u, err
		}

		break
	}

	for _, dir := range unitDirs {
		for _, file := range t.FilesUnder(path.Join(dir, name+".d")) {
			if err := t.readSettings(&u, file); err != nil {
				return u, err
			}
		}
	}

	return u, nil
}

func (t *Tree) readSettings(u *unit, file string) error {
	b, err := t.Read(file)
	if err != nil {
		return err
	}

	u.ours = u.ours || isOurs(file)
	long := ""
	for i, text := range strings.Split(string(b), "\n") {
		text = long + strings.TrimSpace(text)
		long = ""
		if text == "" || text[0] == '#' || text[0] == ';' {
			continue
		}
		if strings.HasSuffix(text, `\`) {
			long = strings.TrimSuffix(text, `\`) + " "
			continue
		}

		key, value, ok := strings.Cut(text, "=")
		if ok {
			u.settings = append(
				u.settings, setting{fmt.Sprintf("%s:%d", file, i+1), strings.TrimSpace(key), strings.TrimSpace(value)},
			)
		}
	}

	return nil
}

// wantedUnits lists what NAME.wants and NAME.requires link in.
func (t *Tree) wantedUnits(name string) []string {
	var out []string
	for _, dir := range unitDirs {
		for _, kind := range []string{".wants", ".requires"} {
			prefix := path.Join(dir, name+kind) + "/"
			for _, n := range t.names {
				if strings.HasPrefix(n, prefix) {
					out = append(out, path.Base(n))
				}
			}
		}
	}
	return out
}

// socketService wants the service of an activating unit of ours.
func (t *Tree) socketService(all map[string]bool, name string) []Miss {
	ext := path.Ext(name)
	if !strings.Contains(name, "firstlight") || ext != ".socket" && ext != ".timer" && ext != ".path" {
		return nil
	}

	service := strings.TrimSuffix(name, ext) + ".service"
	u, err := t.readUnit(name)
	if err != nil {
		return nil
	}

	for _, s := range u.settings {
		if s.key == "Unit" || s.key == "Service" {
			service = s.value
		}
	}

	if t.hasUnit(all, service) {
		return nil
	}

	return []Miss{{name, "it starts " + service + ": no such unit"}}
}
