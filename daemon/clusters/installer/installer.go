// Package installer makes a Kubernetes cluster of machines that answer by SSH: the default installer
// behind the operator's contract (docs/kud.md; docs/clusters.md walks through it). It runs in a
// container on the appliance and needs nothing but the appliance.
//
// Every node goes through a plan of its own, all at once, and the cluster through one beside them; the
// engine is the appliance's (package bringup). A stage asks the node, so that the installer may be
// killed anywhere and started again: what holds is left alone. What is written is decided by pure
// functions (render.go, facts.go, verdicts in system.go and verify.go).
package installer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/daemon/clusters/contract"
	"firstlight.dev/firstlight/daemon/clusters/contract/inventory"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// Config is what the installer is told.
type Config struct {
	Settings
	Dir   string            // the cluster's directory on the appliance: inventory in, kubeconfig and logs out
	Clear map[string]string // label to the cluster that let go of that node without clearing it
	Key   ssh.Signer
	Stall time.Duration // the run ends when nothing came true for so long
	Out   io.Writer     // lines for people
}

// Installer works on one cluster.
type Installer struct {
	config  Config
	cluster *cluster
	close   []func()
}

// New reads the inventory. What is wrong in it, or with what was asked, is for a person to mend.
func New(c Config) (*Installer, error) {
	text, err := os.ReadFile(filepath.Join(c.Dir, contract.FileInventory))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, bringup.Permanent(fmt.Errorf("read inventory: %w", err))
	} else if err != nil {
		return nil, fmt.Errorf("read inventory: %w", err)
	}

	inv, err := inventory.Parse(text)
	if err != nil {
		return nil, bringup.Permanent(fmt.Errorf(
			"read inventory %s: %w", filepath.Join(c.Dir, contract.FileInventory), err,
		))
	}

	if err := checkNetworks(c.Settings, inv); err != nil {
		return nil, bringup.Permanent(err)
	}

	i := &Installer{config: c}
	log, err := i.logTo("installer")
	if err != nil {
		return nil, err
	}

	i.cluster = &cluster{
		Settings: c.Settings,
		dir:      c.Dir,
		inv:      inv,
		log:      slog.New(slog.NewTextHandler(log, nil)),
	}
	hosts := &remote.Hosts{
		Known:   filepath.Join(c.Dir, contract.FileKnownHosts),
		Learned: filepath.Join(c.Dir, contract.FileLearned),
	}
	for _, in := range inv.Nodes {
		log, err := i.logTo(in.Label)
		if err != nil {
			return nil, err
		}

		shell := &remote.Node{
			Target: remote.Target{Name: in.Label, Addr: in.SSH(), User: in.User, Password: in.Password},
			Key:    c.Key,
			Hosts:  hosts,
			Trace:  log,
		}
		i.close = append(i.close, shell.Close)
		i.cluster.nodes = append(i.cluster.nodes, &node{
			Node:    in,
			cluster: i.cluster,
			shell:   shell,
			leftBy:  c.Clear[in.Label],
			log:     slog.New(slog.NewTextHandler(log, nil)),
		})
	}

	return i, nil
}

// checkNetworks refuses addresses that mean two things.
func checkNetworks(s Settings, inv inventory.Inventory) error {
	if !s.Pods.IsValid() || !s.Services.IsValid() {
		return errors.New("the networks of pods and Services must be given")
	}
	if s.Pods.Overlaps(s.Services) {
		return fmt.Errorf("the network of pods %s and that of Services %s overlap", s.Pods, s.Services)
	}
	if room := 1 << max(0, nodeBits(s.Pods)-s.Pods.Bits()); room < len(inv.Nodes) {
		return fmt.Errorf(
			"the network of pods %s has room for %d nodes, the inventory has %d", s.Pods, room, len(inv.Nodes),
		)
	}

	for _, n := range inv.Nodes {
		if s.Pods.Contains(n.Addr) || s.Services.Contains(n.Addr) {
			return fmt.Errorf(
				"the address %s of %s is in the network of pods %s or of Services %s", n.Addr, n.Label, s.Pods,
				s.Services,
			)
		}
		if n.Addr.Is4() != s.Pods.Addr().Is4() {
			return fmt.Errorf(
				"the address %s of %s and the network of pods %s are not of one family", n.Addr, n.Label, s.Pods,
			)
		}
	}

	return nil
}

// maxLog is the size, in bytes, from which on a log is begun anew and its former life kept as NAME.log.1.
const maxLog = 4 << 20

// logTo opens a log below the cluster's directory, to go on where it ended. It is for root alone: what
// programs print is not ours to promise.
func (i *Installer) logTo(name string) (io.Writer, error) {
	path := filepath.Join(i.config.Dir, contract.LogDir, name+".log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}

	if info, err := os.Stat(path); err == nil && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("put log aside: %w", err)
		}
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if err := f.Chmod(0o600); err != nil { // an older one was for everybody
		return nil, errors.Join(fmt.Errorf("open log: %w", err), f.Close())
	}

	i.close = append(i.close, func() { _ = f.Close() })
	return f, nil
}

// Close ends the connections to the nodes.
func (i *Installer) Close() {
	for _, c := range i.close {
		c()
	}
}

// errGoesOn is a run that is not over.
var errGoesOn = errors.New("the installation continues")

// Install makes the whole inventory true, whatever it finds. It returns nil when everything holds, a
// bringup.Permanent error when only a person can mend what does not, and any other when nothing came
// true for a while.
func (i *Installer) Install(ctx context.Context) error {
	plans := map[string]*bringup.Runner{"": {Plan: i.cluster.stages(), Log: i.cluster.log}}
	order := []string{""}
	for _, n := range i.cluster.nodes {
		plans[n.Label] = &bringup.Runner{Plan: n.stages(), Log: n.log}
		order = append(order, n.Label)
	}

	return i.run(ctx, plans, order)
}

// run runs plans beside each other until they hold, or will not.
func (i *Installer) run(ctx context.Context, plans map[string]*bringup.Runner, order []string) error {
	t := newTracker(i.config.Dir, i.config.Out, order)
	t.nodes = i.cluster.lastReady
	running, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for name, r := range plans {
		r.Changed = func(s bringup.Snapshot) { t.update(name, s) }
		wg.Go(func() { _ = r.Run(running) })
	}

	defer wg.Wait()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.wake:
		case <-time.After(time.Second):
		}
		if err := i.cluster.refusal(); err != nil {
			return err // of all nodes: there is nothing to wait for
		}
		if err := t.outcome().result(i.config.Stall); err != errGoesOn {
			return err
		}
	}
}
