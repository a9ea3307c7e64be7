package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unit is a service as its file and drop-ins say (systemd.service(5), systemd.exec(5)).
type unit struct {
	name       string
	kind       string // Type=
	pre, start [][]string
	stop       [][]string
	env        []string
	envFiles   []string // with a leading - if it may be absent
	dir        string
	user       string
	restart    string
	restartSec time.Duration
	killMode   string
	slack      time.Duration // of timers; 0: that of this manager
	remain     bool
	requires   []string               // Requires=, Wants=, BindsTo=: started first
	dirs       []string               // absolute: RuntimeDirectory=, StateDirectory=, …
	dirModes   map[string]os.FileMode // of those below /run, /var/lib, …
	ambient    []uintptr              // AmbientCapabilities=
	notKnown   []string               // directives this manager does not follow
}

// unitDirs are searched in systemd's order.
func unitDirs() []string {
	return []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system"}
}

// load reads a unit and its drop-ins.
func load(name string, dirs []string) (*unit, error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if target, err := os.Readlink(path); err == nil && target == "/dev/null" {
			return nil, fmt.Errorf("Unit %s is masked.", name)
		}

		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}

		u := &unit{
			name:       name,
			kind:       "simple",
			restart:    "no",
			restartSec: 100 * time.Millisecond,
			killMode:   "control-group",
			dirModes:   map[string]os.FileMode{},
		}
		texts := []string{string(text)}
		var dropIns []string
		for _, d := range dirs {
			found, _ := filepath.Glob(filepath.Join(d, name+".d", "*.conf"))
			dropIns = append(dropIns, found...)
		}

		slices.SortFunc(dropIns, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
		for _, d := range dropIns {
			if text, err := os.ReadFile(d); err == nil {
				texts = append(texts, string(text))
			}
		}

		for _, t := range texts {
			if err := u.parse(t); err != nil {
				return nil, fmt.Errorf("read unit %s: %w", name, err)
			}
		}

		return u, nil
	}
	return nil, fmt.Errorf("Unit %s not found.", name)
}

// parse adds what one file says.
func (u *unit) parse(text string) error {
	section := ""
	text = strings.ReplaceAll(text, "\\\n", " ")
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
			continue
		}

		key, value, found := strings.Cut(line, "=")
		if !found {
			return fmt.Errorf("line %q has no value", line)
		}

		if section == "Unit" || section == "Service" {
			if err := u.set(strings.TrimSpace(key), strings.TrimSpace(value)); err != nil {
				return err
			}
		}
	}

	return nil
}

func (u *unit) set(key, value string) error {
	commands := func(list *[][]string) {
		if value == "" {
			*list = nil
			return
		}
		*list = append(*list, split(value))
	}
	below := func(top string) {
		for _, d := range strings.Fields(value) {
			u.dirs = append(u.dirs, top+"/"+d)
		}
	}
	switch key {
	case "Type":
		u.kind = value
	case "ExecStartPre":
		commands(&u.pre)
	case "ExecStart":
		commands(&u.start)
	case "ExecStop":
		commands(&u.stop)
	case "Environment":
		u.env = append(u.env, split(value)...)
	case "EnvironmentFile":
		u.envFiles = append(u.envFiles, value)
	case "WorkingDirectory":
		u.dir = value
	case "User":
		u.user = value
	case "Restart":
		u.restart = value
	case "RestartSec":
		d, err := parseSpan(value)
		if err != nil {
			return fmt.Errorf("RestartSec: %w", err)
		}
		u.restartSec = d
	case "TimerSlackNSec":
		d, err := time.ParseDuration(value)
		if err != nil {
			return fmt.Errorf("TimerSlackNSec: %w", err)
		}
		u.slack = d
	case "KillMode":
		u.killMode = value
	case "RemainAfterExit":
		u.remain = value == "yes" || value == "true" || value == "1"
	case "Requires", "Wants", "BindsTo":
		for _, r := range strings.Fields(value) {
			if strings.HasSuffix(r, ".service") {
				u.requires = append(u.requires, r)
			}
		}
	case "RuntimeDirectory":
		below("/run")
	case "StateDirectory":
		below("/var/lib")
	case "CacheDirectory":
		below("/var/cache")
	case "LogsDirectory":
		below("/var/log")
	case "RuntimeDirectoryMode", "StateDirectoryMode":
		mode, err := strconv.ParseUint(value, 8, 12)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		u.dirModes[map[string]string{"RuntimeDirectoryMode": "/run", "StateDirectoryMode": "/var/lib"}[key]] = os.FileMode(mode)
	case "AmbientCapabilities":
		for _, name := range strings.Fields(value) {
			number, known := capabilities[name]
			if !known {
				return fmt.Errorf("AmbientCapabilities: the sandbox does not know %s", name)
			}
			u.ambient = append(u.ambient, number)
		}
	case "Description", "Documentation", "After", "Before", "TimeoutStartSec", "TimeoutStopSec", "StartLimitIntervalSec", "Group":
		// An order among units that are started one by one, by hand, is the caller's.
	default:
		u.notKnown = append(u.notKnown, key)
	}

	return nil
}

// capabilities are those that the appliance's units ask for.
var capabilities = map[string]uintptr{"CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH}

// parseSpan reads a time span: a number of seconds, or with a unit.
func parseSpan(value string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(value, 64); err == nil {
		return time.Duration(n * float64(time.Second)), nil
	}
	return time.ParseDuration(strings.ReplaceAll(strings.ReplaceAll(value, "min", "m"), "sec", "s"))
}

// split divides a line into words; quotes hold words together.
func split(line string) []string {
	var words []string
	var word strings.Builder
	quote, open := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case r == '"' || r == '\'':
			quote, open = r, true
		case r == ' ' || r == '\t':
			if open || word.Len() > 0 {
				words = append(words, word.String())
				word.Reset()
				open = false
			}
		default:
			word.WriteRune(r)
		}
	}

	if open || word.Len() > 0 {
		words = append(words, word.String())
	}

	return words
}

// environment is what the unit's processes get.
func (u *unit) environment() ([]string, error) {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	env = append(env, u.env...)
	for _, path := range u.envFiles {
		text, err := os.ReadFile(strings.TrimPrefix(path, "-"))
		if err != nil {
			if strings.HasPrefix(path, "-") {
				continue
			}
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if key, value, found := strings.Cut(line, "="); found && !strings.HasPrefix(line, "#") {
				env = append(env, key+"="+strings.Trim(value, `"'`))
			}
		}
	}

	return env, nil
}

// expand replaces ${NAME} inside words, and a word $NAME by the words of its value.
func expand(words, env []string) []string {
	value := func(name string) string {
		for _, e := range slices.Backward(env) {
			if v, found := strings.CutPrefix(e, name+"="); found {
				return v
			}
		}
		return ""
	}
	var all []string
	for _, w := range words {
		if name, found := strings.CutPrefix(w, "$"); found && !strings.HasPrefix(name, "{") {
			all = append(all, split(value(name))...)
			continue
		}
		all = append(all, os.Expand(w, func(name string) string { return value(name) }))
	}

	return all
}
