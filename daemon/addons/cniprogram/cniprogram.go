// Package cniprogram installs CNI plugins in a node's folder of programs, and overwrites nothing of somebody else's. On
// the node it answers the container runtime in a plugin's name.
package cniprogram

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Installer installs programs. What something else put there is not overwritten: a list in the State folder has the
// digests of what was installed.
type Installer struct {
	Programs string // folder of programs, as the process sees it
	State    string // folder of the list

	seen map[string]stamp // files that were right, and how they looked then
}

// stamp is by what a file is recognized without reading it.
type stamp struct {
	size int64
	time time.Time
	mode os.FileMode
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.Size(), info.ModTime(), info.Mode()}, nil
}

// Ensure makes a node's program of a name the one in a file. One that is another's stays; if ours is required, that is an
// error.
func (p *Installer) Ensure(from, name string, required bool) error {
	path := filepath.Join(p.Programs, name)
	now, err := stampOf(path)
	if err == nil && p.seen[path] == now {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("install plugin %s: %w", name, err)
	}

	list := filepath.Join(p.State, "programs.json")
	installed, readErr := readInstalled(list)
	if readErr != nil {
		return readErr
	}
	wanted, sumErr := sum(from)
	if sumErr != nil {
		return fmt.Errorf("install plugin %s: %w", name, sumErr)
	}

	if err == nil {
		have, err := sum(path)
		switch {
		case err != nil:
			return fmt.Errorf("install plugin %s: %w", name, err)
		case have == wanted && now.mode.Perm() == 0o755:
			return p.remember(path)
		case have != wanted && !slices.Contains(installed[name], have):
			if required {
				return fmt.Errorf("%s is another program; remove it from the node", filepath.Join("/opt/cni/bin", name))
			}
			return p.remember(path)
		}
	}

	if !slices.Contains(installed[name], wanted) {
		installed[name] = append(installed[name], wanted)
		text, err := json.Marshal(installed)
		if err != nil {
			return fmt.Errorf("encode the list of plugins: %w", err)
		}
		if err := os.MkdirAll(p.State, 0o700); err != nil {
			return fmt.Errorf("write the list of plugins: %w", err)
		}
		if err := atomicfile.WriteChanged(list, text, 0o600); err != nil {
			return fmt.Errorf("write the list of plugins: %w", err)
		}
	}
	if err := copyProgram(from, path); err != nil {
		return err
	}
	return p.remember(path)
}

func (p *Installer) remember(path string) error {
	now, err := stampOf(path)
	if err != nil {
		return err
	}
	if p.seen == nil {
		p.seen = map[string]stamp{}
	}
	p.seen[path] = now
	return nil
}

// readInstalled reads the digests of what was installed, by name. A list that cannot be read is empty.
func readInstalled(path string) (map[string][]string, error) {
	all := map[string][]string{}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of plugins: %w", err)
	}
	if json.Unmarshal(text, &all) != nil || all == nil {
		return map[string][]string{}, nil
	}
	return all, nil
}

func copyProgram(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("install %s: %w", to, err)
	}
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("install %s: %w", to, err)
	}
	defer f.Close()
	return atomicfile.Copy(to, f, 0o755)
}

func sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()

	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
