package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// loginTimeout is how long a machine may take to accept a connection and a login.
const loginTimeout = 20 * time.Second

// Shell logs in with one key, as root.
type Shell struct {
	Signer ssh.Signer
	Others []ssh.Signer // tried where that one is not let in
	Port   uint16       // 22 if zero
}

// keys are what it logs in with.
func (s Shell) keys() ssh.AuthMethod {
	return ssh.PublicKeys(append([]ssh.Signer{s.Signer}, s.Others...)...)
}

// ErrUnknownHost says that nobody has told which host key an address has.
var ErrUnknownHost = errors.New("its host key is not known")

// Run runs a script for /bin/sh as root and returns what it printed on standard output and
// on standard error, the end of it. hostKey is as in authorized_keys. The error is nil if
// the script ran to an end, whatever its exit code.
func (s Shell) Run(ctx context.Context, addr netip.Addr, hostKey, script string) (out, said string, err error) {
	if hostKey == "" {
		return "", "", fmt.Errorf("log in to %s: %w", addr, ErrUnknownHost)
	}

	client, err := s.dial(ctx, addr, "root", s.keys(), hostKey, nil)
	if err != nil {
		return "", "", err
	}
	defer client.Close()

	return runSession(ctx, client, "/bin/sh -s", script)
}

// LearnHostKey logs in as root at an address whose host key nobody knows, and returns the key it was shown, as in
// authorized_keys. It is for a system that the appliance has just installed.
func (s Shell) LearnHostKey(ctx context.Context, addr netip.Addr) (hostKey string, err error) {
	var seen ssh.PublicKey
	client, err := s.dial(ctx, addr, "root", s.keys(), "", &seen)
	if err != nil {
		return "", err
	}

	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(seen))), client.Close()
}

// Password is a user that an image came with.
type Password struct{ User, Password string }

// Adopt makes the appliance's key root's log-in at addr, and takes the default user's
// password away: by that user it adds the key, then logs in with it, and only then removes
// the password. hostKey is "" at the first contact; pin is then told what the host showed,
// and must have kept it when it returns. It may be cut off anywhere and be called again.
func (s Shell) Adopt(
	ctx context.Context,
	addr netip.Addr,
	hostKey string,
	p Password,
	pin func(hostKey string) error,
) error {
	if hostKey != "" && s.lockPassword(ctx, addr, hostKey, p.User) == nil {
		return nil
	}

	var seen ssh.PublicKey
	client, err := s.dial(ctx, addr, p.User, ssh.Password(p.Password), hostKey, &seen)
	if err != nil {
		return err
	}
	defer client.Close()

	pinned := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(seen)))
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.Signer.PublicKey()))) + " appliance"
	script := fmt.Sprintf(addKey, key)
	command := []string{"/bin/sh", "-c", script}
	if p.User != "root" {
		command = append([]string{"sudo", "-S", "-p", ""}, command...)
	}

	if _, said, err := runSession(ctx, client, Quote(command), p.Password+"\n"); err != nil {
		return fmt.Errorf("add key at %s: %w", addr, err)
	} else if strings.Contains(said, "sudo:") {
		return fmt.Errorf("add key at %s: user %s may not become root: %s", addr, p.User, said)
	}

	if err := pin(pinned); err != nil { // once the password is gone there is no second first contact
		return fmt.Errorf("keep host key of %s: %w", addr, err)
	}
	if err := s.lockPassword(ctx, addr, pinned, p.User); err != nil {
		return fmt.Errorf("log in with the added key, password of %s kept: %w", p.User, err)
	}

	return nil
}

// addKey is for root's shell. A line that is there stays the only one.
const addKey = `set -e
umask 077
home=$(getent passwd root | cut -d: -f6)
mkdir -p "$home/.ssh"
touch "$home/.ssh/authorized_keys"
grep -qxF '%[1]s' "$home/.ssh/authorized_keys" || echo '%[1]s' >>"$home/.ssh/authorized_keys"`

// Authorize lets a key log in as root at addr, by one that may already. line is as in authorized_keys; it replaces those
// whose comment begins with replaced, so that of several keys for one purpose the last one alone is let in.
func (s Shell) Authorize(ctx context.Context, addr netip.Addr, hostKey, line, replaced string) error {
	out, said, err := s.Run(ctx, addr, hostKey, fmt.Sprintf(authorizeKey, line, replaced))
	if err != nil {
		return err
	}
	if strings.TrimSpace(out) != "authorized" {
		return fmt.Errorf("add key at %s: %s", addr, said)
	}

	return nil
}

// authorizeKey is for root's shell. The file is replaced whole.
const authorizeKey = `set -e
umask 077
home=$(getent passwd root | cut -d: -f6)
mkdir -p "$home/.ssh"
file=$home/.ssh/authorized_keys
touch "$file"
if ! grep -qxF '%[1]s' "$file" || grep -F ' %[2]s' "$file" | grep -qvxF '%[1]s'; then
	{ grep -vF ' %[2]s' "$file" || true; echo '%[1]s'; } >"$file.new"
	sync "$file.new"
	mv "$file.new" "$file"
fi
echo authorized
`

// lockPassword takes a user's password away, as root. '*' is no password's hash, and unlike '!' does
// not keep the user's own keys from logging in (shadow(5)).
func (s Shell) lockPassword(ctx context.Context, addr netip.Addr, hostKey, user string) error {
	out, said, err := s.Run(ctx, addr, hostKey, Quote([]string{"usermod", "-p", "*", user})+" && echo locked\n")
	if err != nil {
		return err
	}
	if strings.TrimSpace(out) != "locked" {
		return fmt.Errorf("take password of %s away at %s: %s", user, addr, said)
	}

	return nil
}

// dial connects and logs in. Without a host key the one that is shown is taken; what is shown is put into seen, if that
// is not nil.
func (s Shell) dial(
	ctx context.Context,
	addr netip.Addr,
	user string,
	auth ssh.AuthMethod,
	hostKey string,
	seen *ssh.PublicKey,
) (*ssh.Client, error) {
	config := &ssh.ClientConfig{
		User:    user,
		Auth:    []ssh.AuthMethod{auth},
		Timeout: loginTimeout,
	}
	check := func(string, net.Addr, ssh.PublicKey) error { return nil }
	if hostKey != "" {
		known, _, _, _, err := ssh.ParseAuthorizedKey([]byte(hostKey))
		if err != nil {
			return nil, fmt.Errorf("log in to %s: read its host key: %w", addr, err)
		}

		Pin(config, known)
		check = config.HostKeyCallback
	}

	config.HostKeyCallback = func(address string, from net.Addr, key ssh.PublicKey) error {
		if seen != nil {
			*seen = key
		}
		return check(address, from, key)
	}

	client, err := Dial(ctx, netip.AddrPortFrom(addr, cmp.Or(s.Port, 22)), config)
	var closed *ConnectError
	switch {
	case errors.As(err, &closed):
		return nil, fmt.Errorf("log in to %s: %w", addr, err)
	case err != nil:
		return nil, fmt.Errorf("log in to %s as %s: %w", addr, user, err)
	}

	return client, nil
}

// runSession runs a command; ctx's end closes the connection.
func runSession(ctx context.Context, client *ssh.Client, command, stdin string) (string, string, error) {
	stop := context.AfterFunc(ctx, func() { client.Close() })
	defer stop()
	run, err := client.NewSession()
	if err != nil {
		return "", "", fmt.Errorf("open session: %w", err)
	}
	defer run.Close()

	var out, said tail
	run.Stdin, run.Stdout, run.Stderr = strings.NewReader(stdin), &out, &said
	err = run.Run(command)
	var exit *ssh.ExitError
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.As(err, &exit):
		err = nil
		fmt.Fprintf(&said, "exit code %d\n", exit.ExitStatus())
	case err != nil:
		err = fmt.Errorf("connection ended: %w: %s", err, said.String())
	}

	return out.String(), said.String(), err
}
