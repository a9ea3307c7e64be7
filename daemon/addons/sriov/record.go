package sriov

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// Assignment is a virtual function that a pod has, and what it was before. It is on the disk before anything is changed:
// whatever moment the power goes, what was changed can be restored.
type Assignment struct {
	Address   string `json:"address"`
	Container string `json:"container"`
	Interface string `json:"interface"` // in the pod
	Namespace string `json:"namespace"` // a path

	PF       string    `json:"pf"` // interface of the physical function
	Index    int       `json:"index"`
	HostName string    `json:"hostName,omitempty"` // of the node's interface; "" without one
	Before   Interface `json:"before"`             // of the node's interface
	Settings Settings  `json:"settings"`           // those that were changed, as they were before
}

// assignments are the files of Assignment, one for each virtual function.
type assignments string

func (a assignments) path(address string) string { return filepath.Join(string(a), address+".json") }

func (a assignments) Save(one Assignment) error {
	text, err := json.Marshal(one)
	if err != nil {
		return fmt.Errorf("encode whose %s is: %w", one.Address, err)
	}
	if err := os.MkdirAll(string(a), 0o700); err != nil {
		return fmt.Errorf("save whose %s is: %w", one.Address, err)
	}
	return atomicfile.Write(a.path(one.Address), text, 0o600)
}

// Load returns whose a virtual function is; false if it is nobody's.
func (a assignments) Load(address string) (one Assignment, ok bool, err error) {
	text, err := os.ReadFile(a.path(address))
	if errors.Is(err, fs.ErrNotExist) {
		return one, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &one)
	}
	if err != nil {
		return one, false, fmt.Errorf("read whose %s is: %w; remove the file if no pod has it", address, err)
	}
	return one, true, nil
}

func (a assignments) Remove(address string) error {
	if err := os.Remove(a.path(address)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget whose %s was: %w", address, err)
	}
	return nil
}

// All returns those of all virtual functions, by address; one that cannot be read is left out, and a part of the error.
func (a assignments) All() (all []Assignment, err error) {
	entries, err := os.ReadDir(string(a))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read whose virtual functions are: %w", err)
	}

	var failed []error
	for _, e := range entries {
		address, isRecord := strings.CutSuffix(e.Name(), ".json")
		if !isRecord {
			continue
		}
		one, ok, err := a.Load(address)
		failed = append(failed, err)
		if ok {
			all = append(all, one)
		}
	}
	return all, errors.Join(failed...)
}

// Find returns a container's interface; false if there is none.
func (a assignments) Find(container, device string) (Assignment, bool, error) {
	all, err := a.All()
	for _, one := range all {
		if one.Container == container && one.Interface == device {
			return one, true, nil
		}
	}
	return Assignment{}, false, err
}
