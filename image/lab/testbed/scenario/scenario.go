// Package scenario lets an appliance provision simulated servers, and breaks things meanwhile: the appliance runs in a
// sandbox with its real Ironic, operator and daemon, the servers are those of package simulator
// in the same network. Tests and benchmarks share it.
package scenario

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/simulator"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// The appliance's address and what it serves.
const (
	Address = "172.22.0.1"
	Boot    = "http://" + Address + ":6180"
)

// Config is what a scenario is made of.
type Config struct {
	Name     string // of the sandbox, unique on this machine
	Dir      string // the appliance's DATA, and logs
	Root     string // see sandbox.RootTree
	Programs sandbox.Programs
	Servers  simulator.Config // Boot and the networks are filled in
	Log      io.Writer        // what happens; may be nil
}

// Scenario is an appliance and its servers.
type Scenario struct {
	Sandbox *sandbox.Sandbox
	Servers *simulator.Simulator

	config Config
	api    *api
	wire   *netns.Bridge // the provisioning network outside of the appliance
	more   []*netns.Bridge
}

// Start makes the sandbox with its provisioning NIC, and the servers. The daemon waits for Begin.
func Start(ctx context.Context, c Config) (*Scenario, error) {
	if c.Log == nil {
		c.Log = io.Discard
	}

	d := &Scenario{config: c}
	var err error
	if d.wire, err = newWire(ctx); err != nil {
		return nil, err
	}
	if err := d.startSandbox(ctx); err != nil {
		d.wire.Close()
		return nil, err
	}

	servers := c.Servers
	servers.Boot, servers.Namespace = Boot, netns.PathOf(d.Sandbox.PID())
	servers.Wire, servers.NIC = d.wire.Path(), netns.BridgeName
	if d.Servers, err = simulator.Start(servers); err != nil {
		d.wire.Close()
		return nil, errors.Join(err, d.Sandbox.Close())
	}

	if err := d.serveAll(); err != nil {
		return nil, errors.Join(err, d.Close())
	}

	return d, nil
}

// newWire makes the provisioning network that servers and strangers are on. All servers share one interface.
func newWire(ctx context.Context) (*netns.Bridge, error) {
	wire, err := netns.NewBridge(ctx)
	if err != nil {
		return nil, err
	}
	if err := wire.IP(ctx, "route add 172.22.0.0/22 dev "+netns.BridgeName); err != nil {
		wire.Close()
		return nil, err
	}

	return wire, nil
}

// Wire is the provisioning network outside of the appliance.
func (d *Scenario) Wire() *netns.Bridge { return d.wire }

// AddNetwork gives the appliance another NIC on a network of its own, until its next power cut.
func (d *Scenario) AddNetwork(ctx context.Context, nic string) (*netns.Bridge, error) {
	wire, err := netns.NewBridge(ctx)
	if err != nil {
		return nil, err
	}

	d.more = append(d.more, wire)
	return wire, wire.Connect(ctx, d.Sandbox.PID(), "appliance", nic)
}

// startSandbox starts a sandbox on the scenario's Dir.
func (d *Scenario) startSandbox(ctx context.Context) error {
	appliance, err := d.config.Programs.StartAppliance(ctx, sandbox.Config{
		Name: d.config.Name,
		Root: d.config.Root,
		Dir:  d.config.Dir,
		Log:  d.config.Log,
	})
	if err != nil {
		return err
	}

	// The BMCs are in the sandbox's own network, because fifty of them should cost little.
	if err := d.wire.Connect(ctx, appliance.PID(), "appliance", "eth0"); err != nil {
		return errors.Join(err, appliance.Close())
	}

	d.Sandbox, d.api = appliance, newAPI(appliance)
	return nil
}

// Close ends everything. What was kept stays in Dir.
func (d *Scenario) Close() error {
	err := errors.Join(d.Servers.Close(), d.Sandbox.Close())
	d.wire.Close()
	for _, wire := range d.more {
		wire.Close()
	}
	return err
}

// Begin writes the site and starts the daemon.
func (d *Scenario) Begin(ctx context.Context, site string) error {
	if err := d.Sandbox.WriteSite(site); err != nil {
		return err
	}
	_, err := d.Sandbox.Run(ctx, "systemctl", "start", "firstlightd")
	return err
}

// EditSite replaces the site, as its owner does.
func (d *Scenario) EditSite(ctx context.Context, site string) error {
	if err := d.Sandbox.WriteSite(site); err != nil {
		return err
	}
	_, err := d.Sandbox.Run(ctx, "firstlightd", "reload")
	return err
}

// Images that the appliance serves: small, each with bytes of its own.
const (
	ImageA = "system-a"
	ImageB = "system-b"
)

func imageContent(image string) []byte { return []byte(strings.Repeat(image+"\n", 1<<16)) }

// ImageSum is the sha256 of an image.
func ImageSum(image string) string { return fmt.Sprintf("%x", sha256.Sum256(imageContent(image))) }

// OS is the line of a node in the site that asks for an image, with a digest that may be wrong.
func OS(image, sum string) string {
	return fmt.Sprintf("os: {url: %q, sha256: %q, format: raw}", Boot+"/"+image+".raw", sum)
}

// serveAll puts the images where the boot server finds them.
func (d *Scenario) serveAll() error {
	for _, name := range []string{ImageA, ImageB} {
		if err := d.serve(name); err != nil {
			return err
		}
	}
	return nil
}

func (d *Scenario) serve(image string) error {
	dir := d.Sandbox.DataPath("/var/lib/firstlight/http")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("serve image: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, image+".raw"), imageContent(image), 0o644); err != nil {
		return fmt.Errorf("serve image: %w", err)
	}

	return nil
}

// What a power cut may lose, each below DATA.
var (
	etcd   = []string{"/var/lib/etcd"}
	ironic = []string{"/var/lib/ironic"}
)

// Loss is what a power cut takes with it.
type Loss int

const (
	Nothing Loss = iota
	Etcd
	Ironic
	Both
	Stick // all of DATA: the next boot is from a fresh stick
)

func (l Loss) String() string {
	return [...]string{"nothing", "etcd", "Ironic's database", "etcd and Ironic's database", "the stick"}[l]
}

// paths are what is lost, below DATA.
func (l Loss) paths() []string {
	switch l {
	case Etcd:
		return etcd
	case Ironic:
		return ironic
	case Both:
		return slices.Concat(etcd, ironic)
	case Stick:
		return sandbox.DataDirs()
	}
	return nil
}

// PowerCut ends the appliance at once, loses what is to be lost, and switches it on again with the same
// site. The servers go on as they are.
func (d *Scenario) PowerCut(ctx context.Context, loss Loss, site string) error {
	return d.PowerCutWith(ctx, loss, func() error { return nil }, site)
}

// PowerCutWith is a PowerCut that besides damages something while the power is off.
func (d *Scenario) PowerCutWith(ctx context.Context, loss Loss, damage func() error, site string) error {
	if err := d.Sandbox.Close(); err != nil {
		return err
	}

	for _, dir := range loss.paths() {
		if err := os.RemoveAll(d.Sandbox.DataPath(dir)); err != nil {
			return fmt.Errorf("lose %s: %w", loss, err)
		}
	}

	if err := damage(); err != nil {
		return err
	}
	if err := d.startSandbox(ctx); err != nil {
		return err
	}
	if err := d.Servers.MoveTo(netns.PathOf(d.Sandbox.PID())); err != nil {
		return err
	}
	if err := d.serveAll(); err != nil {
		return err
	}

	return d.Begin(ctx, site)
}

// Kill ends a part of the appliance at once, without a chance to tidy up; whoever keeps it starts it again.
func (d *Scenario) Kill(ctx context.Context, part string) error {
	commands := map[string][]string{
		"firstlightd": {"systemctl", "kill", "--signal=SIGKILL", "firstlightd"},
		"ironic":      {"pkill", "-KILL", "-f", "/usr/bin/ironic --config-file"},
		"operator":    {"pkill", "-KILL", "-f", "^/baremetal-operator"},
		"apiserver":   {"pkill", "-KILL", "-f", "^kube-apiserver"},
		"etcd":        {"pkill", "-KILL", "-x", "etcd"},
		"bpa":         {"pkill", "-KILL", "-f", "^[^ ]*firstlightd bpa "},
		"cluster-api": {"pkill", "-KILL", "-f", "^[^ ]*cluster-api (cluster-api|bootstrap-kubeadm|control-plane-kubeadm) "},
	}
	command := commands[part]
	if command == nil {
		return fmt.Errorf("kill %s: it is no part of the appliance", part)
	}

	_, err := d.Sandbox.Run(ctx, command[0], command[1:]...) // in the sandbox's own process namespace
	return err
}

// Dialer connects to addresses from the appliance itself.
func (d *Scenario) Dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	return dialerIn(d.Sandbox.PID())
}

// dialerIn connects to addresses in the network of a process.
func dialerIn(pid int) func(context.Context, string, string) (net.Conn, error) {
	return dialerFrom(pid, netip.Addr{})
}

// dialerFrom is dialerIn from one of the process's addresses; zero: any.
func dialerFrom(pid int, from netip.Addr) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, family, addr string) (conn net.Conn, err error) {
		dialer := &net.Dialer{Timeout: 10 * time.Second, FallbackDelay: -1}
		if from.IsValid() {
			dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}

		err = netns.Do(netns.PathOf(pid), func() (err error) {
			conn, err = dialer.DialContext(ctx, family, addr)
			return err
		})
		return conn, err
	}
}

// Logs are the last lines of what a container of namespace metal3 said, all its lives together.
func (d *Scenario) Logs(container string, bytes int) string {
	files, _ := filepath.Glob(d.Sandbox.DataPath("/var/log/pods/metal3_*/" + container + "/*.log"))
	var out strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		fmt.Fprintf(&out, "%s:\n%s\n", filepath.Base(filepath.Dir(filepath.Dir(file))), text[max(0, len(text)-bytes):])
	}

	return out.String()
}
