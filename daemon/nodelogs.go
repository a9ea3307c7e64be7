package daemon

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/supportbundle"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/clusters/workload"
	"firstlight.dev/firstlight/daemon/metal/verify/fact"
	"firstlight.dev/firstlight/daemon/page"
)

// Bounds of the logs of a node.
const (
	maxRamdiskLogs = 5       // the newest
	maxIronicLog   = 4 << 20 // bytes of its end that are searched
	systemTimeout  = 20 * time.Second
)

// ironicLogs are where the kubelet keeps what Ironic prints.
const ironicLogs = "/var/log/pods/*_ironic-*/ironic/*.log"

// ironicRequests is the logger of Ironic's that has each request to its API, most of which only ask how a node is.
const ironicRequests = " eventlet.wsgi.server "

// nodeLogs reads the logs that the appliance has of a node, and the node's own.
type nodeLogs struct {
	ramdisk *fact.RamdiskLogs
	ironic  string // pattern of the files that Ironic's log is in

	// id is that of Ironic for a node; "": it does not know the node.
	id func(node string) string
	// ask reads the log of the system that is installed on a node.
	ask func(ctx context.Context, node string) ([]byte, error)
	// redactor knows what is not to be shown.
	redactor func(ctx context.Context) (*supportbundle.Redactor, error)
}

// newNodeLogs reads those of the daemon's nodes.
func (d *Daemon) newNodeLogs(secrets *vault.Vault) *nodeLogs {
	return &nodeLogs{
		ramdisk: d.metal.RamdiskLogs(),
		ironic:  ironicLogs,
		id:      d.metal.IronicID,
		ask: func(ctx context.Context, node string) ([]byte, error) {
			all := d.metal.AllNodes().Nodes
			i := slices.IndexFunc(all, func(n site.Node) bool { return string(n.Name) == node })
			if i < 0 {
				return nil, fmt.Errorf("the site does not name %s", node)
			}
			return nodeLog(ctx, secrets.Keys, all[i], d.Document())
		},
		redactor: func(ctx context.Context) (*supportbundle.Redactor, error) {
			return supportbundle.NewRedactor(ctx, "", d.kubernetes.REST)
		},
	}
}

// read reads them all, without secrets: those of deploy ramdisks that failed, the newest first, what Ironic printed of
// the node, and what is on the node itself. The error is for people.
func (l *nodeLogs) read(ctx context.Context, node string) ([]page.NodeLog, error) {
	hide, err := l.redactor(ctx)
	if err != nil {
		return nil, fmt.Errorf("no log is shown, as its secrets cannot be hidden: %w", err)
	}

	type source struct {
		page.NodeLog
		read func() ([]byte, error)
	}
	var sources []source
	times := l.ramdisk.Times(node)
	for _, at := range times[:min(len(times), maxRamdiskLogs)] {
		when, _ := time.Parse("2006-01-02-15-04-05", at) // zero: Ironic names its files in another way
		sources = append(sources, source{
			page.NodeLog{ID: "ramdisk-" + at, Title: "Deploy ramdisk after a failure", Time: when},
			func() ([]byte, error) { return l.ramdisk.Text(node, at) },
		})
	}
	sources = append(sources,
		source{page.NodeLog{ID: "ironic", Title: "Ironic, about this node"}, func() ([]byte, error) {
			return l.readIronic(node)
		}},
		source{page.NodeLog{ID: "system", Title: "Installed system"}, func() ([]byte, error) {
			ctx, cancel := context.WithTimeout(ctx, systemTimeout)
			defer cancel()
			return l.ask(ctx, node)
		}},
	)

	texts, errs := make([][]byte, len(sources)), make([]error, len(sources))
	var asking sync.WaitGroup
	for i, s := range sources { // all at once: a dead node takes its time
		asking.Go(func() { texts[i], errs[i] = s.read() })
	}
	asking.Wait()

	all := make([]page.NodeLog, 0, len(sources))
	for i, s := range sources { // the redactor is not for several at once
		one := s.NodeLog
		if errs[i] != nil {
			one.Error = string(hide.Redact([]byte(errs[i].Error())))
		}
		if one.Log, err = workload.ReadLog(bytes.NewReader(hide.Redact(texts[i]))); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// readIronic finds the lines of Ironic's log that name a node, but for requests.
func (l *nodeLogs) readIronic(node string) ([]byte, error) {
	id := l.id(node)
	if id == "" {
		return nil, nil
	}

	files, err := filepath.Glob(l.ironic)
	if err != nil {
		return nil, fmt.Errorf("find Ironic's log: %w", err)
	}
	changed := map[string]time.Time{}
	for _, name := range files {
		if info, err := os.Stat(name); err == nil {
			changed[name] = info.ModTime()
		}
	}
	slices.SortFunc(files, func(a, b string) int {
		return cmp.Or(changed[a].Compare(changed[b]), strings.Compare(a, b))
	})

	var found []byte
	for _, name := range files {
		text, err := readTail(name, maxIronicLog)
		if err != nil {
			return found, fmt.Errorf("read Ironic's log: %w", err)
		}
		for line := range bytes.Lines(text) {
			if bytes.Contains(line, []byte(id)) && !bytes.Contains(line, []byte(ironicRequests)) {
				found = append(found, stripKubelet(line)...)
			}
		}
	}
	return found, nil
}

// stripKubelet removes what the kubelet puts before each line: time, stream and whether it is whole.
func stripKubelet(line []byte) []byte {
	if f := bytes.SplitN(line, []byte(" "), 4); len(f) == 4 && (string(f[1]) == "stdout" || string(f[1]) == "stderr") {
		return f[3]
	}
	return line
}

// readTail reads the end of a file.
func readTail(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(max(0, info.Size()-most), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, most))
}
