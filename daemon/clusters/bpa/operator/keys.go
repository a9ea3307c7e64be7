package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"firstlight.dev/firstlight/daemon/clusters/bpa/kud"
	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// system is which installation of which host's disk an address led to.
type system struct {
	Is      string `json:"is"`                // HOST@TIME of the installation
	Renewed bool   `json:"renewed,omitempty"` // another one was there before: its host key was forgotten
}

// renewSystems are the systems that addresses lead to now, and the addresses that led to another one when their
// host keys were taken. It is pure.
func renewSystems(before, now map[netip.Addr]system) (after map[netip.Addr]system, forget []netip.Addr) {
	after = maps.Clone(before)
	if after == nil {
		after = map[netip.Addr]system{}
	}

	for addr, is := range now {
		switch was, known := before[addr]; {
		case !known:
			after[addr] = is
		case was.Is != is.Is:
			after[addr] = system{Is: is.Is, Renewed: true}
			forget = append(forget, addr)
		}
	}

	slices.SortFunc(forget, netip.Addr.Compare)
	return after, forget
}

// readSystems reads which systems the host keys of a cluster are of. What cannot be read is not known.
func (d clusterDir) readSystems() (map[netip.Addr]system, error) {
	text, err := d.read(contract.FileKeys)
	if err != nil {
		return nil, fmt.Errorf("read systems of host keys: %w", err)
	}

	var all map[netip.Addr]system
	if json.Unmarshal(text, &all) != nil {
		return nil, nil
	}

	return all, nil
}

// knownHosts are the host keys of a cluster's nodes by address: those that the site gave or the operator
// pinned, and for the others those that the installer met.
func (d clusterDir) knownHosts() (map[netip.Addr]string, error) {
	keys := map[netip.Addr]string{}
	for _, name := range []string{contract.FileLearned, contract.FileKnownHosts} {
		text, err := d.read(name)
		if err != nil {
			return nil, fmt.Errorf("read known hosts: %w", err)
		}
		maps.Copy(keys, remote.ReadKnownHosts(text))
	}
	return keys, nil
}

// forgetKeys removes the host keys of members whose host was provisioned anew since, or is another one at
// the same address: they are taken anew at the next contact. The note of it is written last.
func (w *clusterState) forgetKeys(members []kud.Node) error {
	before, err := w.dir.readSystems()
	if err != nil {
		return err
	}

	now := map[netip.Addr]system{}
	for _, m := range members {
		if b := w.host(m); b != nil && m.Address.IsValid() {
			now[m.Address] = system{Is: m.Host + "@" + installedAt(b)}
		}
	}

	after, forget := renewSystems(before, now)
	for _, name := range []string{contract.FileLearned, contract.FileKnownHosts} {
		text, err := w.dir.read(name)
		if err != nil {
			return fmt.Errorf("read known hosts: %w", err)
		}
		if left := remote.WithoutHosts(text, forget); len(left) != len(text) {
			if err := w.dir.write(name, left, 0o644); err != nil {
				return err
			}
		}
	}

	text, err := json.MarshalIndent(after, "", " ")
	if err != nil {
		return fmt.Errorf("encode systems of host keys: %w", err)
	}

	return w.dir.write(contract.FileKeys, append(text, '\n'), 0o644)
}

// nodeKeys is how Software knows the nodes of a cluster.
type nodeKeys struct {
	dir     clusterDir
	known   map[netip.Addr]string
	systems map[netip.Addr]system
}

// hostKey is the host key of a node; "" if nobody knows it. Of a system that was provisioned anew it is taken at
// the first contact, and kept.
func (k nodeKeys) hostKey(ctx context.Context, shell remote.Shell, addr netip.Addr) (string, error) {
	if k.known[addr] != "" || !k.systems[addr].Renewed {
		return k.known[addr], nil
	}

	key, err := shell.LearnHostKey(ctx, addr)
	if err != nil {
		return "", err
	}

	return key, k.dir.addHostKey(addr, key)
}

// hostKeyError says what to do about a host key that changed though the appliance did not provision the server anew.
func (k nodeKeys) hostKeyError(addr netip.Addr, err error) error {
	var changed *remote.HostKeyChangedError
	if !errors.As(err, &changed) {
		return err
	}
	return fmt.Errorf(
		"%w; if that is meant, remove the lines of %s from %s and %s, else find out who answers there", err, addr,
		k.dir.path(contract.FileKnownHosts), k.dir.path(contract.FileLearned),
	)
}

// addHostKey adds a host key to those that were met. The installer may add one at the same moment.
func (d clusterDir) addHostKey(addr netip.Addr, key string) error {
	path := d.path(contract.FileLearned)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("keep host key: %w", err)
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("keep host key: %w", err)
	}

	_, err = f.Write(remote.KnownHosts(map[netip.Addr]string{addr: key}))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("keep host key: %w", err)
	}

	return nil
}
