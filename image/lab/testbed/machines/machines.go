// Package machines are the installed systems of simulated servers (package simulator). Each is a sandbox with the
// servers' own system: it boots with the config drive that Ironic wrote, and its own cloud-init reads it. By that alone a
// machine of Cluster API becomes a node, and one of a site lets the appliance in. Tests and benchmarks share it.
package machines

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox/nodes"
	"firstlight.dev/firstlight/image/lab/testbed/scenario"
)

// Config is where systems live.
type Config struct {
	Root string    // see sandbox.RootTree
	Dir  string    // disks and programs; absolute
	Log  io.Writer // what boots; may be nil
}

// Rack is what systems are installed on.
type Rack struct {
	Name    string // of its sandboxes, unique on this machine
	System  string // disk image of the servers' system
	Manager string // see sandbox.Programs
	Servers *simulator.Simulator
	Wire    *netns.Bridge // their network, 172.22.0.0/24
}

// Machines are the systems of a rack's servers.
type Machines struct {
	Config
	rack Rack

	running map[string]*sandbox.Sandbox
	disks   map[string]*Disk
	hangs   map[string]int  // by server: its boots so far; its system stands still until the next one
	broken  map[string]bool // systems that never come up again
}

// Disk is what was installed on a server.
type Disk struct {
	Booted time.Time // for the first time
	dir    string
	drives int // config drives that the server had got by then
}

// New gives the appliance the program for nodes of the sources at hand, before it makes packages of it.
func New(ctx context.Context, d *scenario.Scenario, c Config) (*Machines, error) {
	r := Rack{
		Name: d.Sandbox.Name(), System: filepath.Join(c.Dir, "system.raw"), Servers: d.Servers, Wire: d.Wire(),
	}
	if err := d.Sandbox.Assemble(nodes.System, r.System); err != nil {
		return nil, err
	}

	var err error
	if r.Manager, err = sandbox.Build(ctx, ".", "./image/lab/testbed/sandbox/systemctl", c.Dir); err != nil {
		return nil, err
	}
	return NewOn(r, c), replaceProgram(ctx, d.Sandbox, c.Dir)
}

// NewOn are the systems of servers that anything installs.
func NewOn(r Rack, c Config) *Machines {
	if c.Log == nil {
		c.Log = io.Discard
	}
	return &Machines{
		Config:  c,
		rack:    r,
		running: map[string]*sandbox.Sandbox{},
		disks:   map[string]*Disk{},
		hangs:   map[string]int{},
		broken:  map[string]bool{},
	}
}

func replaceProgram(ctx context.Context, appliance *sandbox.Sandbox, dir string) error {
	const inside = "/usr/local/bin/firstlight-node"
	program, err := sandbox.Build(ctx, ".", "./cmd/firstlight-node", dir)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := appliance.WriteFile(inside, text, 0o755); err != nil {
		return err
	}

	_, err = appliance.Run(ctx, "sh", "-euc", "for f in "+stick.LowerDir+
		"/usr/share/firstlight/images/layers/*/fs/usr/bin/firstlight-node; do mount --bind "+inside+" $f; done")
	return err
}

// Close ends all systems.
func (m *Machines) Close() error {
	var all []error
	for name := range m.running {
		all = append(all, m.stop(name))
	}
	return errors.Join(all...)
}

// Systems are those that run, by server.
func (m *Machines) Systems() map[string]*sandbox.Sandbox { return m.running }

// Disk is what was installed on a server last; nil: nothing.
func (m *Machines) Disk(server string) *Disk { return m.disks[server] }

// Logs are what a system says of how it became a node.
func (m *Machines) Logs(server string) string {
	s := m.running[server]
	if s == nil {
		return ""
	}

	var all strings.Builder
	write := func(what, text string, n int) {
		fmt.Fprintf(&all, "%s of %s:\n%s\n", what, server, text[max(0, len(text)-n):])
	}
	for _, file := range []string{"/var/log/cloud-init.log", "/var/log/node.log"} {
		text, _ := os.ReadFile(s.Path(file))
		write(file, string(text), 8000)
	}
	for _, unit := range []string{"kubelet.service", "containerd.service", "firstlight-float.service"} {
		write(unit, s.UnitLog(unit), 3000)
	}
	return all.String()
}

// Address is what the system of a server has on the rack's network. The first server is 0.
func Address(server int) string { return fmt.Sprintf("172.22.0.%d/24", 211+server) }

// Follow starts the system of each server that boots from its disk, and ends that of each that is switched off. It is to
// be called again and again.
func (m *Machines) Follow(ctx context.Context) error {
	for i, h := range m.rack.Servers.Hosts() {
		boots, hangs := m.hangs[h.Name]
		var err error
		switch on, runs := h.State() == simulator.OnDisk, m.running[h.Name] != nil; {
		case on && !runs && !m.broken[h.Name] && (!hangs || h.Counters().Boots > boots):
			delete(m.hangs, h.Name)
			err = m.boot(ctx, h, Address(i))
		case !on && runs && h.State() == simulator.Off:
			err = m.stop(h.Name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	return nil
}

func (m *Machines) stop(server string) error {
	err := m.running[server].Close()
	delete(m.running, server)
	return err
}

// Hang has a system stand still until its server is switched off and on.
func (m *Machines) Hang(server string) error {
	for _, h := range m.rack.Servers.Hosts() {
		if h.Name == server {
			m.hangs[server] = h.Counters().Boots
		}
	}
	return m.stop(server)
}

// Destroy has a system stand still for good.
func (m *Machines) Destroy(server string) error {
	m.broken[server] = true
	return m.stop(server)
}

// boot starts a server's system: a new one with the config drive that it got last, or again the one that is there.
func (m *Machines) boot(ctx context.Context, h *simulator.Server, addr string) error {
	drive, drives := h.InstalledDrive(), len(h.ReceivedDrives())
	has := m.disks[h.Name]
	isNew := has == nil || has.drives != drives
	if isNew {
		dir, err := os.MkdirTemp(m.Dir, h.Name+"-")
		if err != nil {
			return err
		}
		has = &Disk{dir: dir, drives: drives}
		m.disks[h.Name] = has
	}

	system, err := sandbox.Start(ctx, sandbox.Config{
		Name:      m.rack.Name + "-" + h.Name,
		Root:      m.Root,
		DiskImage: m.rack.System,
		Disk:      true,
		Dir:       has.dir,
		Manager:   m.rack.Manager,
		Log:       m.Log,
		Keep:      []string{"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/etcd", "/var/log"},
	})
	if err != nil {
		return err
	}
	m.running[h.Name] = system
	if err := m.rack.Wire.Connect(ctx, system.PID(), "port-"+h.Name, "eth0"); err != nil {
		return err
	}
	if isNew {
		if err := writeDisk(system, drive); err != nil {
			return err
		}
	}

	start := "ip link set eth0 address " + h.MAC + "; ip address add " + addr + " dev eth0"
	if !isNew {
		fmt.Fprintf(m.Log, "%s boots again\n", h.Name)
		_, err := system.Run(ctx, "sh", "-euc", "hostname -F /etc/hostname; "+start+"; systemctl start ssh; systemctl default containerd kubelet firstlight-float")
		return err
	}
	if _, err := system.Run(ctx, "sh", "-euc", start); err != nil {
		return err
	}

	fmt.Fprintf(m.Log, "%s boots\n", h.Name)
	has.Booted = time.Now()
	init := system.Command(ctx, "sh", "-c", "exec >/var/log/node.log 2>&1; cloud-init init --local; cloud-init init; "+
		"cloud-init modules --mode=config; cloud-init modules --mode=final; systemctl start ssh")
	if err := init.Start(); err != nil {
		return err
	}
	go func() { _ = init.Wait() }()
	return nil
}

// writeDisk writes what is on a new server's disk.
func writeDisk(system *sandbox.Sandbox, drive []byte) error {
	files, err := readDrive(drive)
	if err != nil {
		return err
	}

	_ = os.Remove(system.Path("/etc/resolv.conf")) // of a resolver that does not run here
	maps.Copy(files, map[string][]byte{
		"/etc/resolv.conf":                      nil,
		"/etc/machine-id":                       []byte(strings.ReplaceAll(string(uuid.NewUUID()), "-", "") + "\n"),
		"/etc/in-sandbox":                       []byte(inSandbox),
		"/etc/cloud/cloud.cfg.d/99-sandbox.cfg": []byte(cloudConfig),
	})
	for path, text := range files {
		if err := system.WriteFile(path, text, 0o755); err != nil {
			return err
		}
	}
	return nil
}
