package gobuild

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"strings"
	"sync"
	"time"

	gomodule "golang.org/x/mod/module"
)

// State is how far the compilation of a program is.
type State struct {
	Fetched   int  // modules that were not on this machine
	Done, All int  // packages, with those that are at work; All is 0 while it is not known
	Linking   bool // all packages are compiled
}

// counter reads what go build -v prints: the path of every package whose turn comes, which it
// counts, and complaints, which it passes on.
type counter struct {
	complaints io.Writer

	mu      sync.Mutex
	partial []byte // a line whose end is yet to come
	fetched int
	done    map[string]bool
	all     map[string]bool // nil while it is not known
	main    string          // the package that needs all others
}

// Write never returns an error but that of the complaints.
func (c *counter) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partial = append(c.partial, text...)
	for {
		line, rest, ended := bytes.Cut(c.partial, []byte("\n"))
		if !ended {
			return len(text), nil
		}

		if !c.count(string(line)) {
			if _, err := c.complaints.Write(c.partial[:len(line)+1]); err != nil {
				return 0, err
			}
		}

		c.partial = rest
	}
}

// count tells whether a line is the path of a package.
func (c *counter) count(line string) bool {
	if strings.HasPrefix(line, "go: downloading ") {
		c.fetched++
		return false
	}
	if gomodule.CheckImportPath(line) != nil {
		return false
	}

	if c.done == nil {
		c.done = map[string]bool{}
	}

	c.done[line] = true
	if c.all != nil {
		c.all[line] = true
	}

	return true
}

// Close passes on a last line without an end.
func (c *counter) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.complaints.Write(c.partial)
	c.partial = nil
	return err
}

// expect is told which packages were not compiled a moment ago, the main one last. Those whose turn
// came before may be among them or not.
func (c *counter) expect(packages []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = map[string]bool{}
	for path := range c.done {
		c.all[path] = true
	}

	for _, path := range packages {
		c.all[path] = true
		c.main = path
	}
}

func (c *counter) state() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := State{Fetched: c.fetched, Done: len(c.done), All: len(c.all)}
	if c.main != "" && c.done[c.main] {
		s.Done, s.Linking = s.All, true // what did not get a turn was as before after all
	}

	return s
}

// watch reports until ctx ends. What is to be compiled is asked for only when the build has taken
// some time: go needs seconds to tell.
func (b Builder) watch(ctx context.Context, c *counter, stale func(context.Context) (string, error)) {
	tick := time.NewTicker(cmp.Or(b.Every, time.Second))
	defer tick.Stop()
	var asked sync.WaitGroup
	defer asked.Wait()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n == 3 {
			asked.Go(func() {
				if packages, err := stale(ctx); err == nil { // else the build says what is wrong
					c.expect(strings.Fields(packages))
				}
			})
		}
		b.Report(c.state())
	}
}
