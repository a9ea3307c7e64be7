package redfish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
)

// media is the disc in the drive.
type media struct {
	Image string // where it came from; "": the drive is empty
	file  string
}

// discFiles are the names of the files, as os.CreateTemp and filepath.Glob take them.
const discFiles = "disc-*.iso"

// fetch copies an image to a file of its own: the disc that is in the drive stays readable until it is replaced.
func (b *BMC) fetch(ctx context.Context, image string) (file string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, image, nil)
	if err != nil {
		return "", err
	}

	response, err := b.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("fetch %s: %s", image, response.Status)
	}

	out, err := os.CreateTemp(b.config.Dir, discFiles)
	if err != nil {
		return "", err
	}

	_, err = io.Copy(out, response.Body)
	if err := errors.Join(err, out.Close()); err != nil {
		return "", errors.Join(fmt.Errorf("fetch %s: %w", image, err), os.Remove(out.Name()))
	}

	return out.Name(), nil
}

// insert replaces the disc in the drive by one that was fetched, or by none. b.mu is held.
func (b *BMC) insert(next media) error {
	if err := b.machine.Insert(next.file); err != nil {
		return errors.Join(err, next.remove())
	}

	former := b.media
	b.media = next
	return former.remove()
}

func (m media) remove() error {
	if m.file == "" {
		return nil
	}
	return os.Remove(m.file)
}

// drive is the resource of the drive (schema VirtualMedia).
func (m media) drive() object {
	var image, name any
	connected := "NotConnected"
	if m.Image != "" {
		image, name, connected = m.Image, path.Base(m.Image), "URI"
	}

	return object{
		"@odata.id":      drivePath,
		"@odata.type":    "#VirtualMedia.v1_3_0.VirtualMedia",
		"Id":             "Cd",
		"Name":           "Virtual CD",
		"MediaTypes":     []string{"CD", "DVD"},
		"Image":          image,
		"ImageName":      name,
		"Inserted":       m.Image != "",
		"WriteProtected": true,
		"ConnectedVia":   connected,
		"Actions": object{
			"#VirtualMedia.InsertMedia": object{"target": insertPath},
			"#VirtualMedia.EjectMedia":  object{"target": ejectPath},
		},
	}
}
