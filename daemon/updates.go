package daemon

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/signature"
	"firstlight.dev/firstlight/daemon/appliance/stickupdate"
	"firstlight.dev/firstlight/daemon/page"
	"firstlight.dev/firstlight/daemon/uploads/publish"
)

// uploadedUpdates are the versions among the uploaded OS images, for the page.
type uploadedUpdates struct {
	stickupdate.Background
	dir string // of uploads
}

// maxUpdateImages is how many images are looked into.
const maxUpdateImages = 100

// state is how this appliance's versions stand. It reads the stick.
func (u *uploadedUpdates) state() (page.UpdateState, error) {
	var s page.UpdateState
	paths, err := filepath.Glob(filepath.Join(u.dir, artifact.ImagesDir, "*", "*", "*"))
	if err != nil {
		return s, err
	}
	for _, path := range paths[:min(maxUpdateImages, len(paths))] {
		image, err := stickupdate.Open(path)
		if err != nil {
			continue // of another system
		}
		name, _ := filepath.Rel(filepath.Join(u.dir, artifact.ImagesDir), path)
		s.Images = append(s.Images, page.UpdateImage{Name: name, Version: image.Config.Version})
		_ = image.Close() // it was read alone
	}
	s.Status, err = u.Updater.Status()
	return s, err
}

// updateState is how this appliance's versions stand; that of a guest is its machine's.
func (d *Daemon) updateState() (page.UpdateState, error) {
	if d.isGuest() {
		return page.UpdateState{}, errors.New("it is installed on a machine of its owner's: firstlight install --image " +
			"updates it there")
	}
	return d.updates.state()
}

// path is the file of an image that was named; an error if it is in no cluster's folder.
func (u *uploadedUpdates) path(name string) (string, error) {
	if isIn, err := filepath.Match("*/*/*", name); err != nil || !isIn || !filepath.IsLocal(name) {
		return "", errors.New("there is no such image; choose one of those that were uploaded")
	}
	return filepath.Join(u.dir, artifact.ImagesDir, name), nil
}

func (u *uploadedUpdates) preview(name string) (stickupdate.Attempt, error) {
	path, err := u.path(name)
	if err != nil {
		return stickupdate.Attempt{}, err
	}
	return u.Updater.Preview(path, u.options(name))
}

func (u *uploadedUpdates) begin(name string) error {
	path, err := u.path(name)
	if err != nil {
		return err
	}
	return u.Begin(path, u.options(name))
}

// options have the signature of an image where the site names keys: NAME.minisig of the same cluster's binary images. One
// in the image itself is found without them.
func (u *uploadedUpdates) options(name string) (o stickupdate.Options) {
	keys, err := u.Updater.Keys()
	if err != nil || len(keys) == 0 {
		return o // the updater says so
	}
	f := strings.Split(name, "/")
	file := publish.Folder(u.dir).ObjectPath(artifact.Key{
		Collection: artifact.Binary, Owner: f[0], Cluster: f[1], Name: f[2] + signature.Suffix,
	})
	if _, err := os.Stat(file); err == nil {
		o.Signature = file
	}
	return o
}

// restart starts this machine again.
func restart(ctx context.Context) error {
	return exec.CommandContext(ctx, "systemctl", "reboot").Run()
}
