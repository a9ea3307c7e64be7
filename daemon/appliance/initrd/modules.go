package initrd

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/u-root/u-root/pkg/kmodule"
)

// aliases answers which modules drive a device, from modules.alias and modules.softdep
// as depmod writes them.
type aliases struct {
	byBus map[string][]alias  // "pci", "usb", …; an alias without a colon is its own bus
	soft  map[string][]string // module: what to load before it, names or aliases
}

type alias struct{ pattern, module string }

// parseAliases reads both tables; lines of other forms are passed over.
func parseAliases(aliasTable, softdepTable string) aliases {
	a := aliases{byBus: map[string][]alias{}, soft: map[string][]string{}}
	for line := range strings.Lines(aliasTable) {
		if w := strings.Fields(line); len(w) == 3 && w[0] == "alias" {
			bus, _, _ := strings.Cut(w[1], ":")
			a.byBus[bus] = append(a.byBus[bus], alias{w[1], w[2]})
		}
	}

	for line := range strings.Lines(softdepTable) {
		w := strings.Fields(line)
		if len(w) < 3 || w[0] != "softdep" {
			continue
		}

		before := false
		for _, word := range w[2:] {
			switch word {
			case "pre:":
				before = true
			case "post:":
				before = false
			default:
				if before {
					name := kernelName(w[1])
					a.soft[name] = append(a.soft[name], word)
				}
			}
		}
	}

	return a
}

// match returns the modules for a device's modalias, in table order.
func (a aliases) match(modalias string) []string {
	bus, _, _ := strings.Cut(modalias, ":")
	var found []string
	for _, c := range a.byBus[bus] {
		if ok, err := path.Match(c.pattern, modalias); err == nil && ok {
			found = append(found, c.module)
		}
	}

	return found
}

// softDependencies returns what the module wants loaded first; aliases are resolved, and a word
// that is no alias is a module's name.
func (a aliases) softDependencies(module string) []string {
	var names []string
	for _, word := range a.soft[kernelName(module)] {
		if m := a.match(word); len(m) > 0 {
			names = append(names, m...)
		} else {
			names = append(names, word)
		}
	}
	return names
}

// kernelName is how the kernel spells a module: with underscores.
func kernelName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// loader loads modules, each once, each in its own goroutine: a driver that takes
// seconds to probe its card must not hold up the stick's.
type loader struct {
	aliases aliases
	prober  *kmodule.Prober
	log     *slog.Logger

	mu      sync.Mutex
	started map[string]chan struct{} // closed when done
	running sync.WaitGroup
}

func newLoader(release string, log *slog.Logger) (*loader, error) {
	dir := filepath.Join("/lib/modules", release)
	aliasTable, err := os.ReadFile(filepath.Join(dir, "modules.alias"))
	if err != nil {
		return nil, err
	}

	softdepTable, err := os.ReadFile(filepath.Join(dir, "modules.softdep"))
	if err != nil {
		return nil, err
	}

	prober, err := kmodule.NewProber(kmodule.ProbeOpts{KVer: release})
	if err != nil {
		return nil, err
	}

	return &loader{aliases: parseAliases(string(aliasTable), string(softdepTable)), prober: prober,
		log: log, started: map[string]chan struct{}{}}, nil
}

// start begins to load a module and what it wants before it; the channel closes when
// that has been tried.
func (l *loader) start(module string) <-chan struct{} {
	name := kernelName(module)
	l.mu.Lock()
	defer l.mu.Unlock()
	if done, ok := l.started[name]; ok {
		return done
	}

	done := make(chan struct{})
	l.started[name] = done
	l.running.Go(func() {
		defer close(done)
		for _, m := range l.aliases.softDependencies(name) {
			<-l.start(m)
		}
		if err := l.prober.Probe(name, ""); err != nil {
			l.log.Info("module not loaded", "module", name, "err", err)
		}
	})
	return done
}

// loadDevice loads what drives a device.
func (l *loader) loadDevice(modalias string) {
	for _, m := range l.aliases.match(strings.TrimSpace(modalias)) {
		l.start(m)
	}
}

// coldplug does so for every device the kernel knows already.
func (l *loader) coldplug() error {
	return filepath.WalkDir("/sys/devices", func(p string, d fs.DirEntry, err error) error {
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // devices come and go
			return err
		}
		if err == nil && d.Name() == "modalias" {
			if b, err := os.ReadFile(p); err == nil {
				l.loadDevice(string(b))
			}
		}
		return nil
	})
}
