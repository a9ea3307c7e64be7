// Package supportbundle writes the support bundle: one archive with what is needed to find out,
// somewhere else, what is wrong with an appliance or a node. It takes what it can get: with
// Kubernetes down, with the daemon dead, with half of the files torn. No secret is in it:
// what the appliance minted or was told is searched for in every text and taken out, and so
// is whatever looks like one.
package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/excerpt"
)

// Collector collects on the machine it runs on. Its zero value works, without what Sources bring.
type Collector struct {
	Root    string                       // put before every path; "" on the appliance
	Connect func() (*rest.Config, error) // how an administrator reaches the API; nil: it is not asked
	Sources []Source
	Run     func(ctx context.Context, name string, args ...string) ([]byte, error) // nil: really
	Now     func() time.Time                                                       // nil: time.Now

	hide  Redactor
	out   *tar.Writer
	top   string // folder that everything in the archive lies in
	index strings.Builder
	total int64
}

// Source brings texts that are no files: the daemon's status, a node's log.
type Source struct {
	Name string // file in the archive
	Get  func(ctx context.Context) ([]byte, error)
}

const (
	fileLimit  = 4 << 20   // of one file the end is kept
	totalLimit = 256 << 20 // before compression
	runLimit   = 20 * time.Second
)

// Write collects and writes the archive, a gzipped tar. What cannot be had is named in its
// INDEX; only what keeps the archive from being written is an error.
func (c *Collector) Write(ctx context.Context, w io.Writer) error {
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}

	z := gzip.NewWriter(w)
	c.out = tar.NewWriter(z)
	c.top = "firstlight-" + now().UTC().Format("20060102T150405Z")
	fmt.Fprintf(
		&c.index, "Firstlight support bundle of %s. Secrets are hidden as %s.\n\n", now().UTC().Format(time.RFC3339),
		hidden,
	)
	c.learnSecrets()
	objects := c.fetchResources(ctx) // first: the API's Secrets are hidden in all that follows
	for _, step := range []func(context.Context) error{
		objects, c.collectSources, c.collectCaptures, c.collectSites, c.collectFiles, c.collectCommands,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}

	if err := c.put("INDEX", []byte(c.index.String()), now()); err != nil {
		return err
	}
	if err := errors.Join(c.out.Close(), z.Close()); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}

	return nil
}

func (c *Collector) path(p string) string { return filepath.Join("/", c.Root, p) }

// addIndexLine writes a line into the index.
func (c *Collector) addIndexLine(name, what string) {
	fmt.Fprintf(&c.index, "%-60s %s\n", name, excerpt.Line(what))
}

// add puts a text into the archive, without its secrets.
func (c *Collector) add(name string, text []byte, err error) error {
	if err != nil {
		c.addIndexLine(name, "missing: "+string(c.hide.Redact([]byte(err.Error()))))
		if len(text) == 0 {
			return nil
		}
	}

	what := fmt.Sprintf("%d bytes", len(text))
	if len(text) > fileLimit {
		text = text[len(text)-fileLimit:]
		what += ", the end of them"
	}

	if c.total += int64(len(text)); c.total > totalLimit {
		c.addIndexLine(name, "left out: the bundle is full")
		return nil
	}

	if err == nil {
		c.addIndexLine(name, what)
	}

	return c.put(name, c.hide.Redact(text), time.Time{})
}

func (c *Collector) put(name string, text []byte, at time.Time) error {
	header := &tar.Header{
		Name:     path.Join(c.top, name),
		Mode:     0o600,
		Size:     int64(len(text)),
		Typeflag: tar.TypeReg,
		ModTime:  at,
		Format:   tar.FormatPAX,
	}
	if err := c.out.WriteHeader(header); err != nil {
		return fmt.Errorf("write bundle: %s: %w", name, err)
	}
	if _, err := c.out.Write(text); err != nil {
		return fmt.Errorf("write bundle: %s: %w", name, err)
	}

	return nil
}

func (c *Collector) collectSources(ctx context.Context) error {
	type answer struct {
		text []byte
		err  error
	}
	answers := make([]answer, len(c.Sources))
	var wg sync.WaitGroup
	for i, s := range c.Sources { // all at once: a dead node takes its time
		wg.Go(func() { answers[i].text, answers[i].err = s.Get(ctx) })
	}

	wg.Wait()
	for i, s := range c.Sources {
		if err := c.add(s.Name, answers[i].text, answers[i].err); err != nil {
			return err
		}
	}

	return nil
}

// collectCommands are what the running system says of itself.
func (c *Collector) collectCommands(ctx context.Context) error {
	for _, line := range []string{
		"journalctl --boot --no-pager --output=short-precise --lines=40000",
		"journalctl --boot=-1 --no-pager --output=short-precise --lines=10000",
		"systemctl --failed --no-pager",
		"dmesg",
		"ps -eo pid,ppid,stat,etime,rss,args",
		"free -m", "df -h", "lsblk -o NAME,SIZE,TYPE,FSTYPE,LABEL,PARTLABEL,MOUNTPOINT",
		"ip -details addr", "ip -statistics link", "ip route show table all", "ip neigh", "bridge link", "nft list ruleset", "ss -tulpn",
		"ctr --namespace k8s.io containers list", "ctr --namespace k8s.io images list",
	} {
		words := strings.Fields(line)
		text, err := c.run(ctx, words[0], words[1:]...)
		if err := c.add(
			"commands/"+strings.ReplaceAll(strings.ReplaceAll(line, "/", "_"), " ", "_"), text, err,
		); err != nil {
			return err
		}
	}
	return nil
}

func (c *Collector) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	if c.Run != nil {
		return c.Run(ctx, name, args...)
	}

	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("run %s: %w", name, err)
	}

	return out.Bytes(), err
}

// tail reads the end of a file.
func tail(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return nil, err
	}

	if info.Size() > fileLimit {
		if _, err := f.Seek(-fileLimit, io.SeekEnd); err != nil {
			return nil, err
		}
	}

	return io.ReadAll(io.LimitReader(f, fileLimit))
}
