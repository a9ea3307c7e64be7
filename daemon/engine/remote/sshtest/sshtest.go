// Package sshtest is a machine to log in to, for tests: an SSH server of the library's in
// this process, whose commands run in a directory of their own.
package sshtest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

// NewKey is a new ed25519 key.
func NewKey(t testing.TB) ssh.Signer {
	s, _ := NewKeyFile(t)
	return s
}

// NewKeyFile is a new ed25519 key, and its file as ssh-keygen writes it.
func NewKeyFile(t testing.TB) (ssh.Signer, []byte) {
	_, k, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	s, err := ssh.NewSignerFromKey(k)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(k, "")
	require.NoError(t, err)
	return s, pem.EncodeToMemory(block)
}

// UseNewHome gives the test a home directory of its own, with a key and no agent, and returns them.
func UseNewHome(t testing.TB) (home string, key ssh.Signer) {
	home = t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, ".config"))
	t.Setenv("SSH_AUTH_SOCK", "")
	key, file := NewKeyFile(t)
	require.NoError(t, os.Mkdir(filepath.Join(home, ".ssh"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home, ".ssh", "id_ed25519"), file, 0o600))
	return home, key
}

// AuthorizedKey is a key as in authorized_keys.
func AuthorizedKey(s ssh.Signer) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.PublicKey())))
}

// Node is the machine. Root logs in with the keys of root/.ssh/authorized_keys, another user with those of
// home/USER/.ssh/authorized_keys, and the user ubuntu with the text of shadow as password. Its commands find usermod, getent and sudo of
// their own, and whatever is put into bin, with the directory as $DIR.
type Node struct {
	T      testing.TB
	Dir    string
	Addr   string
	Port   uint16
	Logins atomic.Int32
	signer ssh.Signer
}

// New starts a node on 127.0.0.1, at a port of its own, until the test ends.
func New(t testing.TB) *Node { return NewAt(t, "127.0.0.1:0") }

// NewAt starts a node at an address.
func NewAt(t testing.TB, address string) *Node {
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	return NewOn(t, l, NewKey(t))
}

// NewOn starts a node with a host key, which answers on l.
func NewOn(t testing.TB, l net.Listener, hostKey ssh.Signer) *Node {
	n := &Node{T: t, Dir: t.TempDir(), signer: hostKey}
	n.Put("shadow", "ubuntu")
	n.PutProgram("getent", `echo root:x:0:0:root:$DIR/root:/bin/sh`)
	n.PutProgram("usermod", `[ "$1 $2 $3" = "-p * ubuntu" ] && echo '*' >$DIR/shadow`)
	n.PutProgram("sudo", `read -r p; [ -f $DIR/nosudo ] && { echo "sudo: not allowed" >&2; exit 1; }; [ "$1 $2 $3" = "-S -p " ] && shift 3; exec "$@"`)
	t.Cleanup(func() { l.Close() })
	bound := l.Addr().(*net.TCPAddr)
	n.Addr, n.Port = bound.IP.String(), uint16(bound.Port)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.serve(c)
		}
	}()

	return n
}

// HostKey is what the node shows.
func (n *Node) HostKey() string { return AuthorizedKey(n.signer) }

// AuthorizeKey lets a key of root's in.
func (n *Node) AuthorizeKey(key ssh.Signer) {
	n.Put("root/.ssh/authorized_keys", AuthorizedKey(key)+"\n")
}

// Put writes a file of the node.
func (n *Node) Put(name, text string) {
	path := filepath.Join(n.Dir, name)
	require.NoError(n.T, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(n.T, os.WriteFile(path, []byte(text), 0o644))
}

// PutProgram puts a shell script into the node's bin.
func (n *Node) PutProgram(name, text string) {
	n.Put("bin/"+name, "#!/bin/sh\n"+text+"\n")
	require.NoError(n.T, os.Chmod(filepath.Join(n.Dir, "bin", name), 0o755))
}

// Get reads a file of the node, without blanks around; "" if it is not there.
func (n *Node) Get(name string) string {
	text, _ := os.ReadFile(filepath.Join(n.Dir, name))
	return strings.TrimSpace(string(text))
}

// SimulateDebian makes it a machine with packages: repo/NAME has the versions that can be had, newest
// first, has/NAME the one that is installed, half/NAME one whose installation was interrupted. While there is a file
// broken, nothing can be. Every call of apt-get that changes something is a line of log.
//
// It restarts by systemctl, which is a line of log, too: boot is its boot ID, and a kernel in new-kernel waits for the
// next one. While there is a file stuck, it does not restart.
func (n *Node) SimulateDebian() *Node {
	n.PutProgram("dpkg-query", `[ $# = 2 ] && { for p in $(ls $DIR/half 2>/dev/null); do echo "iF  $p $(cat $DIR/half/$p)"; done; exit 0; }
for p; do :; done; [ -f $DIR/half/$p ] && { echo "iF  $(cat $DIR/half/$p)"; exit 0; }
[ -f $DIR/has/$p ] && echo "ii  $(cat $DIR/has/$p)"`)
	n.PutProgram("dpkg", `[ "$1" = --compare-versions ] && exec /usr/bin/dpkg "$@"; exit 0`)
	n.PutProgram("find", `/bin/cat $DIR/new-kernel 2>/dev/null; exit 0`)
	n.PutProgram("cat", `[ "$1" = /proc/sys/kernel/random/boot_id ] && set -- $DIR/boot; exec /bin/cat "$@"`)
	n.PutProgram("systemctl", `[ "$1" = reboot ] || exit 1
echo reboot >>$DIR/log; [ -f $DIR/stuck ] && exit 0; rm -f $DIR/new-kernel; echo "$(cat $DIR/boot)+" >$DIR/boot`)
	n.Put("boot", "boot-of-"+n.Addr+"\n")
	n.PutProgram("apt-cache", `case $1 in policy)
	echo "$2:"
	echo "  Installed: $(cat $DIR/has/$2 2>/dev/null || echo "(none)")"
	echo "  Candidate: $(head -n 1 $DIR/repo/$2 2>/dev/null || cat $DIR/has/$2 2>/dev/null || echo "(none)")"
	exit 0;; esac
[ -f $DIR/repo/$2 ] && while read v; do echo " $2 | $v | http://x stable/main amd64 Packages"; done <$DIR/repo/$2`)
	n.PutProgram("apt-get", `case " $* " in *" -s "*) for p in $(ls $DIR/has 2>/dev/null); do
	have=$(cat $DIR/has/$p) next=$(head -n 1 $DIR/repo/$p 2>/dev/null); [ "${next:-$have}" = $have ] || echo "Inst $p [$have] ($next firstlight [amd64])"
done; exit 0;; esac
echo "$*" >>$DIR/log; case " $* " in *" update "*) exit 0;; esac
[ -f $DIR/broken ] && { echo "E: Unable to correct problems, you have held broken packages." >&2; exit 100; }
mkdir -p $DIR/has
seen=; for a; do if [ -n "$seen" ]; then p=${a%%=*} v=${a#"$p"}; v=${v#=}; echo ${v:-$(head -n 1 $DIR/repo/$p)} >$DIR/has/$p; rm -f $DIR/half/$p; fi; [ "$a" = install ] && seen=1; done; exit 0`)
	n.Put("repo/htop", "3.4\n")
	n.Put("repo/jq", "1.7\n1.6\n")
	return n
}

// InstallCount counts the calls that installed something.
func (n *Node) InstallCount() int { return strings.Count(n.Get("log"), " install ") }

// Environment is what the node's commands run with.
func (n *Node) Environment() []string {
	return []string{"DIR=" + n.Dir, "PATH=" + n.Dir + "/bin:/usr/bin:/bin"}
}

var errRefused = errors.New("refused")

func (n *Node) serve(c net.Conn) {
	config := &ssh.ServerConfig{
		PasswordCallback: func(m ssh.ConnMetadata, p []byte) (*ssh.Permissions, error) {
			if m.User() == "ubuntu" && string(p) == n.Get("shadow") {
				return nil, nil
			}
			return nil, errRefused
		},
		PublicKeyCallback: func(m ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
			home := "home/" + m.User()
			if m.User() == "root" {
				home = "root"
			}
			key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(k)))
			if strings.Contains(n.Get(home+"/.ssh/authorized_keys"), key) {
				return nil, nil
			}
			return nil, errRefused
		},
	}
	config.AddHostKey(n.signer)
	_, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}

	n.Logins.Add(1)
	go ssh.DiscardRequests(requests)
	for open := range channels {
		ch, requests, err := open.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			if r.Type == "exec" {
				r.Reply(true, nil)
				n.exec(ch, string(r.Payload[4:]))
				break
			}
			r.Reply(false, nil)
		}
	}
}

// exec runs a command for a session, and ends it with the test.
func (n *Node) exec(ch ssh.Channel, command string) {
	cmd := exec.CommandContext(n.T.Context(), "/usr/bin/env", "sh", "-c", command) // the node's own, if it has one
	cmd.Env = n.Environment()
	cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
	in, err := cmd.StdinPipe()
	if err != nil {
		return
	}

	go func() { io.Copy(in, ch); in.Close() }()
	code := byte(0)
	if cmd.Run() != nil {
		code = byte(cmd.ProcessState.ExitCode())
	}

	ch.SendRequest("exit-status", false, []byte{0, 0, 0, code})
	ch.Close()
}
