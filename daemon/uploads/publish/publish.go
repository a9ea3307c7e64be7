// Package publish gives what was brought to those who use it, as second names of the files that the
// store keeps, so that nothing is copied: complete OS images and binaries to the appliance's boot
// server, Debian packages to its repository. It also writes the catalog by which the daemon knows the
// OS images.
package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/metal/packages"
)

// Folder is the folder with the store, the second names and the catalog; see assets/artifact.
type Folder string

// Sync makes names and catalog what the records say. It may be cut off and called again.
func (f Folder) Sync(
	complete map[artifact.Collection][]artifact.Metadata,
	usage map[artifact.Collection]artifact.Usage,
) error {
	images := OSImages(complete[artifact.OS])
	wanted := map[string]bool{}
	var failed []error
	there := images[:0:0]
	for _, i := range images {
		name := filepath.Join(artifact.ImagesDir, i.Key().Object())
		if err := f.link(i.Key(), i.Length, name); err != nil {
			failed = append(failed, err)
			continue
		}

		wanted[name] = true
		there = append(there, i)
	}

	for _, r := range complete[artifact.Binary] {
		names, err := f.publishBinary(r, wanted)
		if err != nil {
			failed = append(failed, err)
		}
		for _, name := range names {
			wanted[name] = true
		}
	}

	signatures, err := f.signatures(complete[artifact.Binary])
	if err != nil {
		failed = append(failed, err)
	}

	// The daemon must not offer what is about to go.
	if err := f.write(artifact.Catalog{Collections: usage, Images: there, Signatures: signatures}); err != nil {
		return errors.Join(append(failed, err)...)
	}

	for _, dir := range []string{artifact.ImagesDir, artifact.PackagesDir, artifact.DigestsDir} {
		failed = append(failed, f.remove(dir, wanted))
	}

	return errors.Join(failed...)
}

// Withdraw takes all names away and leaves the catalog without images: the store is elsewhere, and has
// no files here.
func (f Folder) Withdraw(
	_ map[artifact.Collection][]artifact.Metadata,
	usage map[artifact.Collection]artifact.Usage,
) error {
	return f.Sync(nil, usage)
}

// publishBinary publishes a binary image, and returns the names that it has now. Of two with the same octets
// either will do.
func (f Folder) publishBinary(r artifact.Metadata, taken map[string]bool) (names []string, err error) {
	if r.SHA256 == "" {
		return nil, nil // it came by S3 itself and is still being read
	}

	k := artifact.Key{Collection: artifact.Binary, Owner: r.Owner, Cluster: r.ClusterName, Name: r.ImageName}
	want := []string{filepath.Join(artifact.DigestsDir, r.SHA256)}
	is, err := f.isPackage(k)
	if err != nil {
		return nil, err
	}

	if is {
		want = append(want, filepath.Join(artifact.PackagesDir, k.Owner+"."+k.Cluster+"."+k.Name+".deb"))
	}

	for _, name := range want {
		if taken[name] {
			continue
		}
		if err := f.link(k, r.ImageLength, name); err != nil {
			return names, err
		}
		names = append(names, name)
	}

	return names, nil
}

// packageHead is how a Debian package begins: an archive whose first member is debian-binary (deb(5)).
const packageHead = "!<arch>\ndebian-binary"

func (f Folder) isPackage(k artifact.Key) (bool, error) {
	file, err := os.Open(f.ObjectPath(k))
	if err != nil {
		return false, fmt.Errorf("publish %s: %w", k, err)
	}
	defer file.Close()

	head := make([]byte, len(packageHead))
	_, err = io.ReadFull(file, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("publish %s: %w", k, err)
	}

	return string(head) == packageHead, nil
}

// PackageName is what a complete binary image is called as a Debian package; "" if it is none, or not there yet.
func (f Folder) PackageName(k artifact.Key) (name, version string, err error) {
	file, err := os.Open(f.ObjectPath(k))
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("look whether %s is a package: %w", k.Name, err)
	}
	defer file.Close()

	control, err := packages.ReadControl(file)
	if err != nil {
		return "", "", nil // then no repository offers it
	}

	return packages.Field(control, "Package"), packages.Field(control, "Version"), nil
}

// ObjectPath is the file in which the store keeps an artifact.
func (f Folder) ObjectPath(k artifact.Key) string {
	return filepath.Join(string(f), artifact.StoreDir, k.Collection.Bucket(), k.Object())
}

// OSImages are the OS images among records that nodes can be installed from, by name.
func OSImages(records []artifact.Metadata) []artifact.OSImage {
	images := []artifact.OSImage{}
	for _, r := range records {
		if r.Complete && r.SHA256 != "" && r.Format != "" {
			images = append(images, artifact.OSImage{
				Owner:       r.Owner,
				Cluster:     r.ClusterName,
				Name:        r.ImageName,
				SHA256:      r.SHA256,
				Format:      r.Format,
				Length:      r.ImageLength,
				VirtualSize: r.VirtualSize,
			})
		}
	}

	slices.SortFunc(images, func(a, b artifact.OSImage) int {
		return bytes.Compare([]byte(a.Key().Object()), []byte(b.Key().Object()))
	})
	return images
}

// link gives an artifact a second name in the folder, in place of an older file of that name.
func (f Folder) link(k artifact.Key, length int64, name string) error {
	object, path := f.ObjectPath(k), filepath.Join(string(f), name)
	have, err := os.Stat(object)
	if err != nil {
		return fmt.Errorf("publish %s: %w", k, err)
	}
	if have.Size() != length {
		return fmt.Errorf("publish %s: the store's file has %d bytes, not %d", k, have.Size(), length)
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
		return fmt.Errorf("publish %s: %w", k, err)
	}

	return nil
}

// remove takes away the names below a folder that are not wanted, and folders that are empty then.
func (f Folder) remove(below string, wanted map[string]bool) error {
	top := filepath.Join(string(f), below)
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch name, _ := filepath.Rel(string(f), path); {
		case path == top && errors.Is(err, fs.ErrNotExist):
			return fs.SkipAll // nothing was ever there
		case err != nil || path == top:
			return err
		case d.IsDir():
			dirs = append(dirs, path)
			return nil
		case !wanted[name]:
			return os.Remove(path)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("withdraw %s: %w", below, err)
	}

	for _, dir := range slices.Backward(dirs) {
		_ = os.Remove(dir) // unless it holds something
	}

	return nil
}

// write replaces the catalog if it says something else than the one that is there.
func (f Folder) write(c artifact.Catalog) error {
	path := filepath.Join(string(f), artifact.CatalogFile)
	if have, err := Read(path); err == nil && slices.Equal(
		have.Images, c.Images,
	) && maps.Equal(have.Collections, c.Collections) && slices.Equal(have.Signatures, c.Signatures) {
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
