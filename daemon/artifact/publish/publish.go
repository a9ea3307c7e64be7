// Package publish gives complete OS images to the appliance's boot server, from which nodes
// are installed: as second names of the files that the store keeps, so that nothing is
// copied. It also writes the catalog by which the daemon knows them.
package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
)

// Folder is the folder with the store, the images and the catalog; see assets/artifact.
type Folder string

// Sync makes images and catalog what the records say. It may be cut off and called again.
func (f Folder) Sync(records []artifact.Record, usage map[artifact.Collection]artifact.Usage) error {
	images := Images(records)
	wanted := map[string]bool{}
	var failed []error
	there := images[:0:0]
	for _, i := range images {
		if err := f.link(i); err != nil {
			failed = append(failed, err)
			continue
		}
		wanted[i.Key().Object()] = true
		there = append(there, i)
	}
	// The daemon must not offer what is about to go.
	if err := f.write(artifact.Catalog{Collections: usage, Images: there}); err != nil {
		return errors.Join(append(failed, err)...)
	}
	return errors.Join(append(failed, f.remove(wanted))...)
}

// Images are the OS images among records that nodes can be installed from, by name.
func Images(records []artifact.Record) []artifact.OSImage {
	images := []artifact.OSImage{}
	for _, r := range records {
		if r.Complete && r.SHA256 != "" && r.Format != "" {
			images = append(images, artifact.OSImage{Owner: r.Owner, Cluster: r.ClusterName, Name: r.ImageName, SHA256: r.SHA256,
				Format: r.Format, Length: r.ImageLength, VirtualSize: r.VirtualSize})
		}
	}
	slices.SortFunc(images, func(a, b artifact.OSImage) int {
		return bytes.Compare([]byte(a.Key().Object()), []byte(b.Key().Object()))
	})
	return images
}

// link gives an image its second name, in place of an older file of that name.
func (f Folder) link(i artifact.OSImage) error {
	object := filepath.Join(string(f), artifact.StoreDir, artifact.OS.Bucket(), i.Key().Object())
	path := filepath.Join(string(f), artifact.ImagesDir, i.Key().Object())
	have, err := os.Stat(object)
	if err != nil {
		return fmt.Errorf("publish %s: %w", i.FullName(), err)
	}
	if have.Size() != i.Length {
		return fmt.Errorf("publish %s: the store's file has %d octets, not %d", i.FullName(), have.Size(), i.Length)
	}
	if now, err := os.Stat(path); err == nil && os.SameFile(have, now) {
		return nil
	}
	fresh := filepath.Join(string(f), artifact.ScratchDir, "publish")
	err = os.Remove(fresh)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.Link(object, fresh)
	}
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return fmt.Errorf("publish %s: %w", i.FullName(), err)
	}
	return nil
}

// remove takes away the names of images that are not wanted, and folders that are empty then.
func (f Folder) remove(wanted map[string]bool) error {
	top := filepath.Join(string(f), artifact.ImagesDir)
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch name, _ := filepath.Rel(top, path); {
		case err != nil || path == top:
			return err
		case d.IsDir():
			dirs = append(dirs, path)
			return nil
		case !wanted[filepath.ToSlash(name)]:
			return os.Remove(path)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("withdraw images: %w", err)
	}
	for _, dir := range slices.Backward(dirs) {
		_ = os.Remove(dir) // unless it holds something
	}
	return nil
}

// write replaces the catalog if it says something else than the one that is there.
func (f Folder) write(c artifact.Catalog) error {
	path := filepath.Join(string(f), artifact.CatalogFile)
	if have, err := Read(path); err == nil && slices.Equal(have.Images, c.Images) && maps.Equal(have.Collections, c.Collections) {
		return nil
	}
	c.Written = time.Now().UTC()
	text, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		return fmt.Errorf("encode catalog: %w", err)
	}
	fresh := filepath.Join(string(f), artifact.ScratchDir, artifact.CatalogFile)
	file, err := os.Create(fresh)
	if err != nil {
		return fmt.Errorf("write catalog: %w", err)
	}
	_, err = file.Write(append(text, '\n'))
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return fmt.Errorf("write catalog: %w", err)
	}
	return nil
}

// Read reads a catalog. One that is not there is an error that wraps fs.ErrNotExist.
func Read(path string) (artifact.Catalog, error) {
	var c artifact.Catalog
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read catalog of artifacts: %w", err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("read catalog of artifacts: %w", err)
	}
	return c, nil
}
