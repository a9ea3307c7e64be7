// Package nodes is a rack in namespaces: an appliance and servers with the system that the appliance
// installs on servers, each a sandbox, on one network without a way out. The appliance
// serves what nodes are given and can log in to every server; nothing else of it runs, unless all of it is
// asked for. What installs clusters is tried here in seconds, where virtual machines take many minutes.
//
//	rack, err := nodes.New(ctx, nodes.Config{Name: "one", Root: root, Dir: dir, Programs: programs}, 2)
//	defer rack.Close()
//	err = rack.Inventory("edge", 1, rack.Servers...)
//	out, err := rack.Installer(ctx, "edge").CombinedOutput()
//
// A server has what servers have: a machine-id and a disk of its own, an SSH server with its own host
// key, containerd. CutPower takes its power, PowerOn gives it back. One that restarts ends as one without power does.
package nodes

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/image/lab/netns"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// System is where the stick carries the servers' system.
const System = "/usr/share/firstlight/images/os/debian-13.raw"

// mirror is in the appliance what serves nodes where nothing else of it runs.
const mirror = "/usr/bin/mirror"

// Addresses of the appliance on its networks. Servers follow from .11 on, on one of them.
var (
	Address   = netip.MustParsePrefix("172.22.0.1/24")
	Baremetal = netip.MustParsePrefix("10.10.110.1/24")
)

// Config is what a rack is made of.
type Config struct {
	Name     string // unique on this machine among racks that live at once
	Root     string // the stick's image, see sandbox.RootTree
	Dir      string // working directory; absolute
	Full     bool   // all of the appliance runs, not only what serves nodes
	Beside   bool   // servers are on baremetal and have no way to provisioning; not with Full
	Programs sandbox.Programs
	Log      io.Writer // what the sandboxes print; may be nil
}

// Rack is an appliance and its servers.
type Rack struct {
	Config
	access []byte            // the appliance's log-in, as in authorized_keys
	system string            // the servers' disk image
	add    map[string]string // to the appliance's root

	Appliance *sandbox.Sandbox
	Servers   []*Server

	bridge *netns.Bridge // joins everybody
}

// New starts a rack with so many servers.
func New(ctx context.Context, c Config, servers int) (*Rack, error) {
	r := &Rack{Config: c}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}

	for range servers {
		if _, err := r.Add(ctx); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}

	return r, nil
}

// Close ends all sandboxes.
func (r *Rack) Close() error {
	var all []error
	for _, s := range r.Servers {
		all = append(all, s.CutPower())
	}

	if r.Appliance != nil {
		all = append(all, r.Appliance.Close())
	}

	if r.bridge != nil {
		r.bridge.Close()
	}

	return errors.Join(all...)
}

// start brings up the appliance: its network, its log-in, and what nodes are given.
func (r *Rack) start(ctx context.Context) (err error) {
	if r.bridge, err = netns.NewBridge(ctx); err != nil {
		return err
	}

	r.add = map[string]string{}
	if !r.Full {
		if r.add[mirror], err = sandbox.Build(ctx, ".", "./image/lab/testbed/sandbox/nodes/mirror", r.Dir); err != nil {
			return err
		}
	}

	if err := r.startSandbox(ctx); err != nil {
		return err
	}

	r.system = filepath.Join(r.Dir, "system.raw")
	if err := r.Appliance.Assemble(System, r.system); err != nil {
		return fmt.Errorf("start rack: %w", err)
	}
	if r.Full {
		return r.startFull(ctx)
	}

	servers, others := "provisioning", "baremetal"
	if r.Beside {
		servers, others = others, servers
	}

	if err := r.bridge.Connect(ctx, r.Appliance.PID(), "appliance", servers); err != nil {
		return err
	}

	key, private, err := newKey()
	if err != nil {
		return err
	}

	r.access = ssh.MarshalAuthorizedKey(key)
	unit := fmt.Sprintf(
		"[Service]\nExecStart=%s /var/lib/firstlight %s %s\nRestart=always\n", mirror, Address, Baremetal,
	)
	err = errors.Join(
		r.Appliance.WriteFile("/root/.ssh/id_rsa", private, 0o600),
		r.Appliance.WriteFile("/etc/systemd/system/mirror.service", []byte(unit), 0o644))
	if err != nil {
		return err
	}

	err = run(ctx, r.Appliance,
		"ip link add "+others+" type bridge", // without a cable
		"ip link set "+others+" up",
		"ip address add "+Address.String()+" dev provisioning",
		"ip address add "+Baremetal.String()+" dev baremetal",
		"systemctl start mirror")
	if err != nil {
		return err
	}

	// It makes packages before it serves them.
	const served = "until (exec 3<>/dev/tcp/%s/6180) 2>/dev/null; do sleep 0.2; done"
	_, err = r.Appliance.Run(ctx, "bash", "-c", fmt.Sprintf(served, Address.Addr()))
	return err
}

// site is that of the whole appliance: no clusters but those that are asked for.
const site = "name: sandbox\nnetworks: {provisioning: {interface: eth0}}\nclusters: []\n"

// startSandbox starts the appliance's sandbox on what it kept, without a network.
func (r *Rack) startSandbox(ctx context.Context) error {
	appliance, err := r.Programs.StartAppliance(ctx, sandbox.Config{
		Name: r.Name,
		Root: r.Root,
		Dir:  filepath.Join(r.Dir, "appliance"),
		Log:  r.Log,
		Add:  r.add,
	})
	if err == nil {
		r.Appliance = appliance
	}
	return err
}

// begin connects the whole appliance and starts its daemon.
func (r *Rack) begin(ctx context.Context) error {
	return errors.Join(
		r.bridge.Connect(ctx, r.Appliance.PID(), "appliance", "eth0"),
		r.Appliance.WriteSite(site),
		run(ctx, r.Appliance, "systemctl start firstlightd"),
	)
}

// CutAppliance takes the appliance's power; servers go on. What was not on its disk is lost, as far as a sandbox can lose it.
func (r *Rack) CutAppliance() error { return r.Appliance.Close() }

// PowerOnAppliance starts the whole appliance on what it kept. It waits for nothing. With Config.Full alone.
func (r *Rack) PowerOnAppliance(ctx context.Context) error {
	if err := r.startSandbox(ctx); err != nil {
		return err
	}
	return r.begin(ctx)
}

// startFull waits until the appliance is as far as it comes without nodes.
func (r *Rack) startFull(ctx context.Context) (err error) {
	if err := r.begin(ctx); err != nil {
		return err
	}
	if _, err := r.Appliance.AwaitStage(ctx, "clusters-handed-over", r.Log); err != nil {
		return err
	}

	key, err := r.Appliance.Run(ctx, "ssh-keygen", "-y", "-f", "/var/lib/firstlight/ssh/id_ed25519")
	r.access = []byte(key)
	return err
}

// run runs command lines without quotes, one after the other.
func run(ctx context.Context, b *sandbox.Sandbox, lines ...string) error {
	for _, l := range lines {
		words := strings.Fields(l)
		if _, err := b.Run(ctx, words[0], words[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func newKey() (ssh.PublicKey, []byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}

	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}

	public, err := ssh.NewPublicKey(key.Public())
	return public, pem.EncodeToMemory(block), err
}

// Inventory writes a cluster's hosts.ini with servers; the first masters of them are control planes,
// the others, or all if there are no others, workers.
func (r *Rack) Inventory(cluster string, masters int, servers ...*Server) error {
	var all, control, work strings.Builder
	for i, s := range servers {
		fmt.Fprintf(&all, "%s  ansible_ssh_host=%s ansible_ssh_port=22\n", s.Label(), s.Addr)
		if i < masters {
			fmt.Fprintln(&control, s.Label())
		}
		if i >= masters || len(servers) == masters {
			fmt.Fprintln(&work, s.Label())
		}
	}

	text := fmt.Sprintf("[all]\n%s\n[kube-master]\n%s\n[kube-node]\n%s\n[etcd]\n%s", &all, &control, &work, &control)
	return r.Appliance.WriteFile("/opt/kud/multi-cluster/"+cluster+"/hosts.ini", []byte(text), 0o644)
}

// Installer is the installer's command line in the appliance.
func (r *Rack) Installer(ctx context.Context, cluster string, args ...string) *exec.Cmd {
	return r.Appliance.Command(ctx, "firstlightd", append([]string{"installer", "--cluster", cluster}, args...)...)
}

// Kubectl asks a cluster by the kubeconfig that the installer left.
func (r *Rack) Kubectl(ctx context.Context, cluster string, args ...string) (string, error) {
	return r.Appliance.Run(ctx, "kubectl", append([]string{"--kubeconfig", "/opt/kud/multi-cluster/" + cluster + "/artifacts/admin.conf"}, args...)...)
}

// Path is where a file of a cluster's directory on the appliance is on this machine.
func (r *Rack) Path(cluster, name string) string {
	return r.Appliance.Path("/opt/kud/multi-cluster/" + cluster + "/" + name)
}
