package away

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/carrier"
)

// What an away copy may hold. Records, keys and kubeconfigs of a thousand servers have some tens of MiB.
const (
	maxFile  = 256 << 20 // bytes of one file
	maxFiles = 100_000
)

// Refusals of Open and Unpack that a caller may want to tell apart. The sentence says more.
var (
	ErrKey      = errors.New("this recovery key does not open it")
	ErrDamaged  = errors.New("it is damaged")
	ErrNewer    = errors.New("it is of a newer version")
	ErrForeign  = errors.New("it is of another site")
	ErrNotBlank = errors.New("this appliance is not blank")
)

// Refusal is why an away copy is not taken: one of the above, and what to do.
type Refusal struct {
	Reason error
	Text   string
}

func (r *Refusal) Error() string { return r.Text }
func (r *Refusal) Unwrap() error { return r.Reason }

// reader reads an away copy entry by entry.
type reader struct {
	sealed  io.Reader // what age opened
	archive *tar.Reader
	header  Header
	files   int
}

// open opens an away copy and reads its header.
func open(r io.Reader, keys []age.Identity) (*reader, error) {
	sealed, err := age.Decrypt(r, keys...)
	var other *age.NoIdentityMatchError
	switch {
	case errors.As(err, &other):
		return nil, &Refusal{ErrKey, "this recovery key does not open it: it was sealed to another; the line recipients of its site.yaml, or firstlightd backup --recipient, said to which"}
	case err != nil:
		return nil, refuse(err)
	}

	packed, err := gzip.NewReader(sealed)
	if err != nil {
		return nil, refuse(err)
	}

	a := &reader{sealed: sealed, archive: tar.NewReader(packed)}
	name, _, data, err := a.next()
	if err != nil {
		return nil, err
	}
	if name != headerName || json.Unmarshal(data, &a.header) != nil || a.header.Format < 1 {
		return nil, &Refusal{ErrDamaged, "it is no away copy of a Firstlight appliance: its first entry is not " + headerName}
	}
	if a.header.Format > Format {
		return nil, &Refusal{ErrNewer, fmt.Sprintf(
			"it was made by Firstlight %s, in format %d; this appliance knows formats up to %d: restore onto one of that version, or of a newer one",
			a.header.Version, a.header.Format, Format)}
	}

	return a, nil
}

// refuse says what is wrong with bytes that cannot be read. What was truncated differs from what was damaged by nothing
// that age could check.
func refuse(err error) error {
	return &Refusal{ErrDamaged, fmt.Sprintf(
		"it is truncated, damaged, or no away copy: %v; copy it again, or take an earlier one", err)}
}

// next reads an entry; io.EOF after the last, when age has seen the end of the copy, too.
func (a *reader) next() (name string, mode fs.FileMode, data []byte, err error) {
	head, err := a.archive.Next()
	if errors.Is(err, io.EOF) {
		if _, err := io.Copy(io.Discard, a.sealed); err != nil {
			return "", 0, nil, refuse(err)
		}
		return "", 0, nil, io.EOF
	}
	if err != nil {
		return "", 0, nil, refuse(err)
	}

	a.files++
	isOwn := head.Name == headerName || head.Name == siteName ||
		path.Clean("/"+head.Name) == "/"+head.Name && isPart("/"+head.Name)
	if head.Typeflag != tar.TypeReg || head.Size > maxFile || a.files > maxFiles || !isOwn {
		return "", 0, nil, &Refusal{ErrDamaged, fmt.Sprintf("it is no away copy: entry %q does not belong to one", head.Name)}
	}

	data, err = io.ReadAll(a.archive)
	if err != nil {
		return "", 0, nil, refuse(err)
	}

	return head.Name, fs.FileMode(head.Mode).Perm(), data, nil
}

// Check reads an away copy to its end and says what it is of; nothing is written.
func Check(r io.Reader, keys []age.Identity) (Header, error) {
	a, err := open(r, keys)
	if err != nil {
		return Header{}, err
	}

	for {
		if _, _, _, err := a.next(); errors.Is(err, io.EOF) {
			return a.header, nil
		} else if err != nil {
			return Header{}, err
		}
	}
}

// Unpack writes an away copy next to the state, all of it or nothing; Resume puts it in place when the machine has
// started again. site is the name of the site that this appliance has a document of, "" if it has none. take gets the
// document of the copy, if that has one, before anything counts; its error is a refusal.
func (p Place) Unpack(
	r io.Reader, keys []age.Identity, site string, take func(document []byte) error,
) (h Header, err error) {
	if err := p.checkBlank(); err != nil {
		return h, err
	}

	a, err := open(r, keys)
	if err != nil {
		return h, err
	}
	if site != "" && site != a.header.Site {
		return h, &Refusal{ErrForeign, fmt.Sprintf(
			"it is of site %s, and site.yaml of this appliance is of %s: one takes over its own site only; give it that site's document first: firstlightd site replace",
			a.header.Site, site)}
	}

	document, err := p.unpackFiles(a)
	if err == nil && document != nil {
		err = take(document)
	}
	if err != nil {
		return h, errors.Join(err, p.Tidy())
	}

	return a.header, p.commit()
}

// unpackFiles writes all entries into partialDir.
func (p Place) unpackFiles(a *reader) (document []byte, err error) {
	if err := os.RemoveAll(p.path(partialDir)); err != nil {
		return nil, fmt.Errorf("unpack away copy: %w", err)
	}

	header, err := json.Marshal(a.header)
	if err != nil {
		return nil, err
	}
	if err := writeFile(filepath.Join(p.path(partialDir), headerName), header, 0o600); err != nil {
		return nil, fmt.Errorf("unpack away copy: %w", err)
	}

	for {
		name, mode, data, err := a.next()
		switch {
		case errors.Is(err, io.EOF):
			return document, nil
		case err != nil:
			return nil, err
		case name == siteName:
			document = data
			continue
		case name == headerName:
			continue
		}

		if err := writeFile(filepath.Join(p.path(partialDir), treeName, name), data, mode); err != nil {
			return nil, fmt.Errorf("unpack away copy: %w", err)
		}
	}
}

// commit gives what was unpacked its name, once it is on the medium.
func (p Place) commit() error {
	if err := os.MkdirAll(filepath.Dir(p.path(waitFile)), 0o755); err != nil {
		return fmt.Errorf("unpack away copy: %w", err)
	}
	if err := os.WriteFile(p.path(waitFile), nil, 0o600); err != nil {
		return fmt.Errorf("unpack away copy: %w", err)
	}
	if err := syncAt(p.path(partialDir)); err != nil {
		return fmt.Errorf("unpack away copy: %w", err)
	}
	if err := os.RemoveAll(p.path(unpackedDir)); err != nil { // of a restore before this one, in the same boot
		return fmt.Errorf("unpack away copy: %w", err)
	}
	if err := os.Rename(p.path(partialDir), p.path(unpackedDir)); err != nil {
		return fmt.Errorf("unpack away copy: %w", err)
	}

	return syncAt(p.path(unpackedDir))
}

// checkBlank refuses an appliance whose own records would be lost.
func (p Place) checkBlank() error {
	holds := p.holds()
	if len(holds) == 0 {
		return nil
	}

	more := ""
	if n := len(holds); n > 3 {
		more, holds = fmt.Sprintf(" and %d more", n-3), holds[:3]
	}
	return &Refusal{ErrNotBlank, fmt.Sprintf(
		"this appliance is not blank: it has records of %s%s, which would be lost; restore onto a blank one (%s)",
		strings.Join(holds, ", "), more, carrier.Read(p.Root).Blank)}
}

// holds are the hosts in service and the clusters that the state has records of.
func (p Place) holds() (all []string) {
	records, _ := filepath.Glob(p.path(Parts()[0].Path + "/*.json"))
	for _, record := range records {
		var r struct {
			Installed bool `json:"installed"`
			Host      struct {
				Status struct {
					Provisioning struct {
						State string `json:"state"`
					} `json:"provisioning"`
				} `json:"status"`
			} `json:"host"`
		}
		text, err := os.ReadFile(record)
		name := "host " + strings.TrimSuffix(filepath.Base(record), ".json")
		if err != nil || json.Unmarshal(text, &r) != nil {
			all = append(all, name) // torn: it may be in service
			continue
		}

		switch r.Host.Status.Provisioning.State {
		case "", "unmanaged", "registering", "inspecting", "preparing", "ready", "available", "match profile":
			if !r.Installed {
				continue
			}
		}
		all = append(all, name)
	}

	clusters, _ := filepath.Glob(p.path(Parts()[1].Path + "/*/*.json"))
	for _, record := range clusters {
		if base := filepath.Base(record); base == "installed.json" || base == "cluster.json" {
			name := "cluster " + filepath.Base(filepath.Dir(record))
			if len(all) == 0 || all[len(all)-1] != name {
				all = append(all, name)
			}
		}
	}
	return all
}

// writeFile writes a file of its own, and makes its folders. It is not on the medium yet.
func writeFile(name string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return err
	}
	return os.Chmod(name, mode)
}

// syncAt brings all of the file system that a path is on to the medium.
func syncAt(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(f.Fd())), f.Close())
}
