package operator

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// clusterDir is a cluster's directory below contract.Dir, shared with its installer.
type clusterDir string

// clusterDir is where a cluster's files are. A name is a label's value, which cannot leave
// the directory; one that could has none.
func (c Config) clusterDir(cluster string) clusterDir {
	if !fs.ValidPath(cluster) || cluster == "." || strings.Contains(cluster, "/") {
		cluster = ".invalid"
	}
	return clusterDir(filepath.Join(c.Dir, cluster))
}

func (d clusterDir) path(name string) string { return filepath.Join(string(d), name) }

// read returns a file, nil if it is not there.
func (d clusterDir) read(name string) ([]byte, error) {
	text, err := os.ReadFile(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// write puts a file there whole, by rename, synced. One that is as wanted stays.
func (d clusterDir) write(name string, text []byte, mode os.FileMode) error {
	return atomicfile.WriteChanged(d.path(name), text, mode)
}

func (d clusterDir) remove(names ...string) error {
	for _, name := range names {
		if err := os.RemoveAll(d.path(name)); err != nil {
			return fmt.Errorf("remove %s: %w", d.path(name), err)
		}
	}
	return nil
}

// readInstalled reads what the cluster is made of; nil if it was never installed. A record that
// cannot be read is no record of nothing: the error stops everything for this cluster.
func (d clusterDir) readInstalled() (*kud.InstalledCluster, error) {
	text, err := d.read(contract.FileInstalled)
	if err != nil || text == nil {
		return nil, err
	}

	r, err := kud.ReadInstalled(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; if the cluster is gone, remove the file", d.path(contract.FileInstalled), err)
	}

	return r, nil
}

// removeFiles removes what a cluster that is no more leaves behind, but for its logs. If it lives on, its nodes say
// so; if they were installed anew, nothing here must speak of its former life.
func (d clusterDir) removeFiles() error {
	return d.remove(
		contract.FileInventory, contract.FileKnownHosts, contract.FileKeys, contract.FileProgress,
		filepath.Dir(contract.FileKubeconfig), contract.FileIdentity, contract.FileInstalled,
	)
}

// maxLogs is how many logs of runs are kept for a cluster.
const maxLogs = 20

// saveLog writes what a run printed, at most 16 MiB of it, and removes the oldest logs.
func (d clusterDir) saveLog(name string, from io.Reader) error {
	path := d.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("keep log: %w", err)
	}
	if err := atomicfile.Copy(path, io.LimitReader(from, 16<<20), 0o644); err != nil {
		return fmt.Errorf("keep log: %w", err)
	}

	logs, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "kud-*.log"))
	age := map[string]int64{}
	for _, l := range logs {
		if info, err := os.Stat(l); err == nil {
			age[l] = info.ModTime().UnixNano()
		}
	}

	slices.SortFunc(logs, func(a, b string) int { return cmp.Compare(age[b], age[a]) })
	for _, old := range logs[min(len(logs), maxLogs):] {
		if err := os.Remove(old); err != nil {
			return fmt.Errorf("remove old log: %w", err)
		}
	}

	return nil
}
