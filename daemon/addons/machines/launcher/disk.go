package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

// Files on a claimed file system. What a guest wrote is never guessed at: the name says the format. disk.img is
// upstream's name.
const (
	rawFile   = "disk.img"
	qcow2File = "disk.qcow2"
)

// Preparation makes the files that are a machine's disks. It may be interrupted anywhere and repeated: a disk has its
// name only when it is whole.
type Preparation struct {
	Machine Machine
	Root    string // before all folders; "" in a pod
	Client  *http.Client
	Pause   time.Duration // between two attempts to fetch an image
	Log     *slog.Logger
}

// Prepare returns the files, by the volumes' names.
func (p *Preparation) Prepare(ctx context.Context) (map[string]File, error) {
	files := map[string]File{}
	for n, v := range p.Machine.Spec.Volumes {
		file, err := p.prepareVolume(ctx, n, v)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		files[v.Name] = file
	}

	if IsEFI(p.Machine.Spec.Domain) {
		vars, err := os.ReadFile(filepath.Join(p.Root, firmwareVars))
		if err != nil {
			return nil, fmt.Errorf("read variables of EFI: %w", err)
		}
		if err := os.WriteFile(filepath.Join(p.Root, RunDir, varsFile), vars, 0o600); err != nil {
			return nil, fmt.Errorf("write variables of EFI: %w", err)
		}
	}
	return files, nil
}

func (p *Preparation) prepareVolume(ctx context.Context, n int, v v1.Volume) (File, error) {
	number := strconv.Itoa(n)
	claim, own := filepath.Join(p.Root, ClaimDir, number), filepath.Join(p.Root, DiskDir, number)
	switch {
	case v.PersistentVolumeClaim != nil:
		return p.openClaim(claim, p.Machine.Claims[v.Name], v.PersistentVolumeClaim.ReadOnly)
	case v.EmptyDisk != nil:
		return createRaw(own, v.EmptyDisk.Capacity.Value())
	case v.CloudInitNoCloud != nil:
		file := filepath.Join(p.Root, RunDir, number+".iso")
		return File{file, Raw}, p.writeSeed(file, filepath.Join(p.Root, SecretDir, number), *v.CloudInitNoCloud)
	case v.FirstlightImage != nil && v.FirstlightImage.ClaimName != "":
		return p.provideImage(ctx, claim, *v.FirstlightImage, usableSize(p.Machine.Claims[v.Name]))
	case v.FirstlightImage != nil:
		return p.provideImage(ctx, own, *v.FirstlightImage, 0)
	}
	return File{}, errors.New("nothing says what is on it")
}

// usableSize is how large a disk on a claimed file system may be: upstream leaves 5.5 % for the file system as well.
func usableSize(claim int64) int64 { return (claim - claim*55/1000) &^ (1<<20 - 1) }

// findDisk is the disk of a folder; false if there is none.
func findDisk(dir string) (File, bool, error) {
	for name, format := range map[string]Format{rawFile: Raw, qcow2File: QCOW2} {
		file := filepath.Join(dir, name)
		_, err := os.Stat(file)
		if err == nil {
			return File{file, format}, true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return File{}, false, err
		}
	}
	return File{}, false, nil
}

// openClaim is the disk on a claim. One that has none gets one.
func (p *Preparation) openClaim(dir string, claim int64, isReadOnly bool) (File, error) {
	file, found, err := findDisk(dir)
	if err != nil || found {
		return file, err
	}
	size := usableSize(claim)
	if isReadOnly || size <= 0 {
		return File{}, fmt.Errorf("the claim has no file %s; write one, or let it be made: readOnly: false", rawFile)
	}
	p.Log.Info("claim gets an empty disk", "bytes", size)
	return createRaw(dir, size)
}

// createRaw makes a disk of zeros that takes no room yet.
func createRaw(dir string, size int64) (File, error) {
	if err := os.MkdirAll(dir, 0o770); err != nil {
		return File{}, err
	}
	file := filepath.Join(dir, rawFile)
	f, err := os.OpenFile(file+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o660)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	return File{file, Raw}, finish(f, file, size)
}

// finish makes a file so long, closes it and gives it its name when all of it is on the disk.
func finish(f *os.File, name string, size int64) error {
	for _, do := range []func() error{
		func() error { return f.Truncate(size) },
		f.Sync,
		f.Close,
		func() error { return os.Rename(f.Name(), name) },
	} {
		if err := do(); err != nil {
			return err
		}
	}

	return atomicfile.SyncDir(filepath.Dir(name))
}
