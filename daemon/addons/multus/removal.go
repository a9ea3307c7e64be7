package multus

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// startDraining gives new pods the default network alone. Where no pod has more, the plugin's configuration goes at
// once. Elsewhere it stays until the last such pod is gone, so that its networks are deleted with it: the runtime
// deletes by the configuration that it has at that time, not by that of the pod's start. Either way the plugin's access
// to the API server goes. The program and the plugins stay: they are not called any more.
func startDraining(d Dirs, options Options) error {
	more, err := podRecords(d).haveMore()
	if err != nil {
		return err
	}

	if more {
		text, err := encodeConf(d, options, true)
		if err != nil {
			return err
		}
		err = atomicfile.WriteChanged(filepath.Join(d.Conf, confFile), text, 0o600)
		if err != nil {
			return err
		}
	} else if err := removeConf(d); err != nil {
		return err
	}
	if err := removeFile(d.kubeconfig()); err != nil {
		return err
	}
	_ = os.Remove(filepath.Dir(d.kubeconfig())) // unless something else is in it
	return nil
}

// finishDraining removes the configuration when the last pod with more than the default network is gone, unless the
// add-on was installed again.
func finishDraining(d Dirs) error {
	more, err := podRecords(d).haveMore()
	if err != nil || more {
		return err
	}

	text, err := os.ReadFile(filepath.Join(d.Conf, confFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the plugin's configuration: %w", err)
	}
	var list struct {
		Plugins []Conf `json:"plugins"`
	}
	if json.Unmarshal(text, &list) != nil || len(list.Plugins) != 1 || !list.Plugins[0].Draining {
		return nil
	}
	return removeConf(d)
}

// removeConf has the runtime call the default network's plugins directly, also for pods that are there.
func removeConf(d Dirs) error {
	if err := removeFile(filepath.Join(d.Conf, confFile)); err != nil {
		return err
	}
	if err := os.RemoveAll(string(podRecords(d))); err != nil {
		return fmt.Errorf("remove what was added to pods: %w", err)
	}
	return nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}
