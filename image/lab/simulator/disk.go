package simulator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/assets/inspection"
)

// imageInfo is what the conductor says of the image to write (standby.prepare_image).
type imageInfo struct {
	ID        string
	URLs      []string
	Algorithm string `json:"os_hash_algo"`
	Sum       string `json:"os_hash_value"`
	Checksum  string
	Format    string `json:"disk_format"`
}

// prepareImage streams an image onto the disk, sums it up on the way, and tries again as often as it
// was told to: each try writes the disk.
func (a *agent) prepareImage(ctx context.Context, p commandParams) (any, *agentError) {
	a.mu.Lock()
	node, done := a.node, a.written == p.Image.ID && a.written != ""
	a.mu.Unlock()
	disk, err := a.server.chooseDisk(node)
	if err != nil {
		return nil, &agentError{"DeviceNotFound", 404, "Error finding the disk or partition device to deploy the image onto", err.Error()}
	}

	sent := unpackDrive(p.Drive)
	a.server.addDrive(sent)
	drive, key, fault := fillDrive(sent)
	if fault != nil {
		return nil, &agentError{"DeploymentError", 500, "Deploy step failed", fault.Error()}
	}
	if refused := a.askForDisk(ctx, disk, key); refused != nil {
		return nil, refused
	}

	again, _ := strconv.Atoi(cmp.Or(a.retries, "9")) // the agent's own default
	var last *agentError
	for try := 0; !done && try <= again; try++ {
		if try > 0 && !sleep(ctx, a.server.simulator.config.WorkTime) {
			break
		}

		a.server.beginWrite(disk)
		sum, err := a.download(ctx, p.Image)
		if err == nil && a.server.currentFaults().BadDisk { // the agent streams, and calls this a download that failed
			err = fmt.Errorf("Unable to write image to device %s. Error: [Errno 5] Input/output error", disk)
		}

		switch want := cmp.Or(p.Image.Sum, p.Image.Checksum); {
		case err != nil:
			last = &agentError{"ImageDownloadError", 500, "Error downloading image", fmt.Sprintf(
				"Download of image %s failed: %v", p.Image.ID, err,
			)}
		case sum != want:
			last = &agentError{"ImageChecksumError", 500, "Error verifying image checksum", fmt.Sprintf(
				"Image failed to verify against checksum. location: %s; image ID: %s; image checksum: %s; verification checksum: %s", disk, p.Image.ID, want, sum)}
		default:
			a.server.finishWrite(disk, sum, drive, key)
			done, last = true, nil
		}
	}

	if !done {
		return nil, last
	}

	a.mu.Lock()
	a.written = p.Image.ID
	a.mu.Unlock()
	return object{"result": fmt.Sprintf(
		"prepare_image: image (%s) written to device %s root_uuid=0x46494e45", p.Image.ID, disk,
	)}, nil
}

// askForDisk asks the appliance whether a disk may be written to, and tells it the host key, as the ramdisk's own
// hardware manager does.
func (a *agent) askForDisk(ctx context.Context, name, key string) *agentError {
	for _, d := range a.server.Disks() {
		if d.Name != name {
			continue
		}

		disk := object{"name": d.Name, "serial": d.Serial, "wwn": d.WWN}
		question := object{"disk": disk, "holds": d.report(), "hostKey": key}
		for {
			code, body, err := a.call(ctx, http.MethodPost, a.api+"/disk", "", question)
			if err == nil && code == http.StatusNoContent {
				return nil
			}
			if err == nil && code < http.StatusInternalServerError {
				var said struct {
					Error struct{ Faultstring string } `json:"error_message"`
				}
				_ = json.Unmarshal(body, &said)
				return &agentError{"DeploymentError", 500, "Deploy step failed", said.Error.Faultstring}
			}
			if !sleep(ctx, a.server.simulator.config.WorkTime) {
				return &agentError{"DeploymentError", 500, "Deploy step failed", "switched off"}
			}
		}
	}
	return nil
}

// download reads the first of the image's URLs and returns the sum of what arrived.
func (a *agent) download(ctx context.Context, image imageInfo) (string, error) {
	if len(image.URLs) == 0 {
		return "", fmt.Errorf("it has no URL")
	}

	var sum hash.Hash
	switch image.Algorithm {
	case "sha256", "":
		sum = sha256.New()
	case "sha512":
		sum = sha512.New()
	default:
		return "", fmt.Errorf("algorithm %q is not known", image.Algorithm)
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, image.URLs[0], nil)
	if err != nil {
		return "", err
	}

	response, err := a.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("received %s from %s", response.Status, image.URLs[0])
	}
	if _, err := io.Copy(sum, response.Body); err != nil {
		return "", err
	}

	if a.server.currentFaults().Corrupt {
		sum.Write([]byte{1})
	}

	return hex.EncodeToString(sum.Sum(nil)), nil
}

// chooseDisk is the disk that the node's hints name, as the agent would take it: the first that fits, the
// first of all without hints. Hints are compared whole, as baremetal-operator writes them ("s== x").
func (h *Server) chooseDisk(node json.RawMessage) (string, error) {
	var n struct {
		Properties struct {
			Hints map[string]any `json:"root_device"`
		}
		Instance struct {
			Hints map[string]any `json:"root_device"`
		} `json:"instance_info"`
	}
	if node != nil {
		if err := json.Unmarshal(node, &n); err != nil {
			return "", err
		}
	}

	hints := n.Instance.Hints
	if len(hints) == 0 {
		hints = n.Properties.Hints
	}

	for _, d := range h.Disks() {
		fits := true
		for key, value := range map[string]string{"name": d.Name, "serial": d.Serial} {
			want, _ := hints[key].(string)
			want = strings.TrimSpace(strings.TrimPrefix(want, "s=="))
			fits = fits && (want == "" || strings.EqualFold(want, value))
		}
		if fits {
			return d.Name, nil
		}
	}

	return "", fmt.Errorf("no suitable device was found for deployment using these hints %v", hints)
}

// beginWrite is the first byte that is written to a disk: what was on it is gone.
func (h *Server) beginWrite(disk string) { h.writeDisk(disk, []string{"data of an unknown kind"}) }

// eraseDisks wipes every disk.
func (h *Server) eraseDisks() {
	for _, d := range h.Disks() {
		h.writeDisk(d.Name, nil)
	}
}

// writeDisk writes to a disk, so that no image is whole on it any more.
func (h *Server) writeDisk(disk string, holds []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.disks {
		if h.disks[i].Name == disk {
			h.disks[i].Image, h.disks[i].Drive, h.disks[i].Holds, h.disks[i].Mark = "", false, holds, nil
			h.disks[i].Writes++
			h.seen.DiskWrites++
			h.simulator.noteChange()
		}
	}
}

// addDrive remembers a config drive that came over the network.
func (h *Server) addDrive(drive []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drives = append(h.drives, drive)
}

// ReceivedDrives are all config drives that were sent to the host, before anything was put into them.
func (h *Server) ReceivedDrives() [][]byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.drives)
}

// InstalledDrive is the config drive on the disk that was written last, with what the ramdisk put into it; nil: there is
// none, or the simulator began with the disk.
func (h *Server) InstalledDrive() []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.installed
}

// finishWrite is the end of a whole image, with the config drive beside it if there is one.
func (h *Server) finishWrite(disk, sum string, drive []byte, key string) {
	mark := readMark(drive)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.installed = drive
	for i := range h.disks {
		if d := &h.disks[i]; d.Name == disk {
			d.Image, d.Drive, d.HostKey = sum, drive != nil, key
			d.Holds, d.Mark = []string{"gpt", "vfat", "ext4"}, mark
			h.simulator.noteChange()
		}
	}
}

// report is what the collector says of a disk.
func (d Disk) report() inspection.Disk {
	if d.Holds == nil {
		return inspection.Disk{Kinds: []string{}}
	}

	sum := sha256.Sum256(fmt.Append(nil, d.Serial, d.Image, d.Holds, d.Writes, d.Mark))
	return inspection.Disk{Kinds: d.Holds, Fingerprint: fmt.Sprintf("data-%x", sum[:6]), Mark: d.Mark}
}
