package measured

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	"firstlight.dev/firstlight/assets/fat"
	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/secureboot"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/media"
)

// Image is what firmware and GRUB measure when a machine boots an image of a stick.
type Image struct {
	Version string `json:"version"`
	Root    string `json:"root"` // root hash of dm-verity

	programs map[string]string // by digest of Authenticode
	files    map[string]string // by SHA-256
	line     []word            // of the kernel's command line, behind its file
	commands []*regexp.Regexp  // of GRUB's configuration
}

// ReadImage reads an image, compressed or not.
func ReadImage(ctx context.Context, name string) (Image, error) {
	image, err := media.Open(ctx, name)
	if err != nil {
		return Image{}, err
	}
	defer image.Close()

	i, err := readImage(image)
	if err != nil {
		return Image{}, fmt.Errorf("read what %s starts: %w", name, err)
	}
	return i, nil
}

func readImage(image io.ReaderAt) (Image, error) {
	i := Image{programs: map[string]string{}, files: map[string]string{}}
	table, err := gpt.ReadPrimary(image)
	if err != nil {
		return i, err
	}

	var slot, grub []byte
	for _, name := range []string{stick.PartitionESP, stick.SlotA.Boot()} {
		p, ok := table.Find(name)
		if !ok {
			return i, fmt.Errorf("it has no partition %s", name)
		}
		volume, err := fat.Open(io.NewSectionReader(image, p.Offset(), p.Size()))
		if err != nil {
			return i, fmt.Errorf("%s: %w", name, err)
		}
		if err := i.addFiles(volume); err != nil {
			return i, fmt.Errorf("%s: %w", name, err)
		}
		if name == stick.PartitionESP {
			grub, err = volume.ReadFile(strings.TrimPrefix(stick.GrubConfigPath, "/"))
		} else {
			slot, err = volume.ReadFile(stick.SlotConfigName)
		}
		if err != nil {
			return i, fmt.Errorf("%s: %w", name, err)
		}
	}

	config, err := stick.ParseSlotConfig(slot)
	if err != nil {
		return i, err
	}
	i.Version, i.Root = config.Version, config.RootHash
	i.line, i.commands = parseLine(string(grub), config), parseCommands(string(grub)+"\n"+string(slot))
	if len(i.line) == 0 {
		return i, fmt.Errorf("%s starts no kernel", stick.GrubConfigPath)
	}
	return i, nil
}

func (i Image) addFiles(volume *fat.Volume) error {
	entries, err := volume.List()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Dir {
			continue
		}
		content, err := volume.ReadFile(e.Path)
		if err != nil {
			return err
		}
		i.files[fmt.Sprintf("%x", sha256.Sum256(content))] = e.Path
		if isProgram(e.Path) {
			digest, err := secureboot.Digest(e.Path, content)
			if err != nil {
				return err
			}
			i.programs[fmt.Sprintf("%x", digest)] = e.Path
		}
	}

	return nil
}

// isProgram reports whether the firmware may be asked to start a file: the boot loaders and the kernel.
func isProgram(name string) bool {
	return name == stick.KernelName || strings.EqualFold(path.Dir("/"+name), path.Dir(stick.LoaderPath))
}
