package launcher

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"sigs.k8s.io/yaml"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
)

// writeSeed writes what cloud-init's datasource NoCloud reads: an ISO 9660 file system called cidata
// (https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html).
func (p *Preparation) writeSeed(path, secrets string, c v1.CloudInit) error {
	data, err := p.seedFiles(secrets, c)
	if err != nil {
		return err
	}
	dir := path + ".d"
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, text := range data {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	iso, err := iso9660.Create(file.New(f, false), 0, 0, 0, dir)
	if err != nil {
		return fmt.Errorf("write seed: %w", err)
	}
	options := iso9660.FinalizeOptions{RockRidge: true, Joliet: true, VolumeIdentifier: "cidata"}
	if err := iso.Finalize(options); err != nil {
		return fmt.Errorf("write seed: %w", err)
	}
	return nil
}

// seedFiles are the files of a seed. The instance's identity is its name: cloud-init does what it does once per instance
// again only on another disk.
func (p *Preparation) seedFiles(secrets string, c v1.CloudInit) (map[string][]byte, error) {
	meta, err := yaml.Marshal(map[string]string{
		"instance-id":    p.Machine.Namespace + "." + p.Machine.Name,
		"local-hostname": p.Machine.Hostname(),
	})
	if err != nil {
		return nil, err
	}
	user, err := readData(c.UserData, c.UserDataBase64, filepath.Join(secrets, UserDir), c.UserDataSecret != nil, UserKey, "userData")
	if err != nil {
		return nil, fmt.Errorf("user data: %w", err)
	}
	network, err := readData(
		c.NetworkData, c.NetworkDataBase64, filepath.Join(secrets, NetworkDir), c.NetworkDataSecret != nil, NetworkKey, "networkData",
	)
	if err != nil {
		return nil, fmt.Errorf("network data: %w", err)
	}

	files := map[string][]byte{"meta-data": meta, "user-data": user}
	if len(network) > 0 {
		files["network-config"] = network
	}
	return files, nil
}

// readData is one of the data, from whichever source has it. Upstream knows the key of a Secret by two names.
func readData(text, encoded, dir string, isSecret bool, keys ...string) ([]byte, error) {
	switch {
	case encoded != "":
		out, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return nil, errors.New("it is not base64")
		}
		return out, nil
	case !isSecret:
		return []byte(text), nil
	}

	for _, key := range keys {
		out, err := os.ReadFile(filepath.Join(dir, key))
		if !errors.Is(err, fs.ErrNotExist) {
			return out, err
		}
	}
	return nil, fmt.Errorf("the Secret has no key %s", keys[0])
}
