package nodes

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"k8s.io/apimachinery/pkg/util/uuid"

	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// Server is one machine of the rack.
type Server struct {
	*sandbox.Sandbox // nil while its power is off
	Addr             netip.Addr
	HostKey          string // as in authorized_keys

	rack *Rack
	nr   int
}

// Add puts one more server into the rack.
func (r *Rack) Add(ctx context.Context) (*Server, error) {
	nr := len(r.Servers) + 1
	network := Address
	if r.Beside {
		network = Baremetal
	}

	at := network.Addr().As4()
	at[3] = byte(10 + nr)
	s := &Server{rack: r, nr: nr, Addr: netip.AddrFrom4(at)}
	r.Servers = append(r.Servers, s)
	return s, s.PowerOn(ctx)
}

func (s *Server) dir() string { return filepath.Join(s.rack.Dir, fmt.Sprintf("server-%d", s.nr)) }

// Label is the server's name in inventories.
func (s *Server) Label() string { return fmt.Sprintf("node-%d", s.nr) }

// PowerOn starts the server on its disk.
func (s *Server) PowerOn(ctx context.Context) error {
	node, err := sandbox.Start(ctx, sandbox.Config{
		Name:      fmt.Sprintf("%s-server-%d", s.rack.Name, s.nr),
		Root:      s.rack.Root,
		DiskImage: s.rack.system,
		Disk:      true,
		Dir:       s.dir(),
		Manager:   s.rack.Programs.Manager,
		Log:       s.rack.Log,
		Keep:      []string{"/var/lib/containerd", "/var/lib/kubelet", "/var/lib/etcd", "/var/log"},
	})
	if err != nil {
		return err
	}

	s.Sandbox = node
	if err := s.beginBoot(ctx); err != nil {
		return err
	}
	if err := s.rack.bridge.Connect(ctx, node.PID(), fmt.Sprintf("port%d", s.nr), "eth0"); err != nil {
		return err
	}
	if err := s.install(); err != nil {
		return fmt.Errorf("install %s: %w", s.Label(), err)
	}

	return run(ctx, node,
		"ip address add "+s.Addr.String()+"/24 dev eth0",
		"systemctl start ssh",
		"systemctl default containerd firstlight-endpoint kubelet")
}

// bootID is where the kernel says which boot this is.
const bootID = "/proc/sys/kernel/random/boot_id"

// beginBoot gives the server a boot ID of its own for each time that its power is switched on: that of this machine's kernel
// stays the same.
func (s *Server) beginBoot(ctx context.Context) error {
	const file = "/run/boot_id"
	if err := s.WriteFile(file, []byte(string(uuid.NewUUID())+"\n"), 0o444); err != nil {
		return err
	}
	return run(ctx, s.Sandbox, "mount --bind "+file+" "+bootID)
}

// Boot is the server's boot ID.
func (s *Server) Boot(ctx context.Context) (string, error) {
	text, err := s.Run(ctx, "cat", bootID)
	return strings.TrimSpace(text), err
}

// install gives a server, once, what cloud-init would: its identity and who may log in.
func (s *Server) install() error {
	if id, err := os.ReadFile(s.Path("/etc/machine-id")); err == nil && len(strings.TrimSpace(string(id))) == 32 {
		return nil
	}

	public, private, err := newKey()
	if err != nil {
		return err
	}

	s.HostKey = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public)))
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	// The system's resolver does not run in a sandbox, and no name server is in the rack.
	if err := os.Remove(s.Path("/etc/resolv.conf")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	return errors.Join(
		s.WriteFile("/etc/resolv.conf", nil, 0o644),
		s.WriteFile("/etc/ssh/ssh_host_ed25519_key", private, 0o600),
		s.WriteFile("/root/.ssh/authorized_keys", s.rack.access, 0o600),
		s.WriteFile("/etc/machine-id", []byte(hex.EncodeToString(id)+"\n"), 0o644))
}

// CutPower takes the server's power. What was not on its disk is lost, as far as a sandbox can lose it.
func (s *Server) CutPower() error {
	if s.Sandbox == nil {
		return nil
	}

	err := s.Close()
	s.Sandbox = nil
	return err
}

// Wipe makes the server a new machine, as an installation of its system would. Its power must be off.
func (s *Server) Wipe() error { return os.RemoveAll(s.dir()) }
