package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/vault"
	"firstlight.dev/firstlight/daemon/engine/remote"
	"firstlight.dev/firstlight/daemon/metal/verify/shell"
)

// Credentials are the user and password that a host's image came with.
type Credentials struct {
	remote.Password
	From string // where they are written, for people
}

// Logins lets the appliance in at hosts whose image knows none of its keys: with the default user and password, once
// (remote.Shell.Adopt). The host key that was met then is kept on DATA and is the host's for as long as what is
// installed stays.
type Logins struct {
	Dir         string // on DATA
	Credentials func(ctx context.Context, host string) (c Credentials, ok bool, err error)
	Port        uint16 // 0: 22

	mu    sync.Mutex
	later map[string]time.Time // by host: not to be tried before
}

// loginPause is how long a password that was refused is not tried again: an image may lock its user.
const loginPause = 2 * time.Minute

// pin is what is kept of a login.
type pin struct {
	Installed string `json:"installed"` // see installation
	HostKey   string `json:"hostKey"`   // as in authorized_keys
	Locked    bool   `json:"locked"`    // the default password is taken away
}

func (l *Logins) path(host string) string { return filepath.Join(l.Dir, host+".json") }

func (l *Logins) read(host, installed string) (p pin) {
	text, err := os.ReadFile(l.path(host))
	if err != nil || json.Unmarshal(text, &p) != nil || p.Installed != installed {
		return pin{}
	}
	return p
}

func (l *Logins) save(host string, p pin) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode login of %s: %w", host, err)
	}
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(l.path(host), text, 0o600)
}

// HostKey is the host key that was met at the first login to what is installed, as in authorized_keys; "" if there was
// none.
func (l *Logins) HostKey(host, installed string) string {
	if l == nil {
		return ""
	}
	return l.read(host, installed).HostKey
}

// aim makes a target the one that was logged in to before; false if that login did not come to its end.
func (l *Logins) aim(t *shell.Target, installed string) bool {
	p := l.read(t.Name, installed)
	if !p.Locked {
		return false
	}

	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(p.HostKey))
	if err != nil {
		return false
	}

	t.HostKey, t.User = key, "root"
	return true
}

// errNoCredentials says that nothing names a user and password for a host.
var errNoCredentials = errors.New("nothing names a default user and password")

// adopt logs in with the default user and password at the first address that takes them, and makes the target that
// host. It may be cut off anywhere and be called again.
func (l *Logins) adopt(ctx context.Context, t *shell.Target, installed string) error {
	c, ok, err := l.Credentials(ctx, t.Name)
	if err != nil || !ok {
		return errors.Join(err, errNoCredentials)
	}

	l.mu.Lock()
	wait := time.Until(l.later[t.Name])
	l.mu.Unlock()
	if wait > 0 {
		return fmt.Errorf("user %s of %s was refused; it is tried again in %s", c.User, c.From, wait.Round(time.Second))
	}

	shell := remote.Shell{Signer: t.Key, Port: l.Port}
	p := l.read(t.Name, installed)
	var failed error
	for _, addr := range t.Addresses {
		if failed = l.adoptAt(ctx, shell, addr, t.Name, c, installed, p.HostKey); failed == nil {
			l.aim(t, installed)
			return nil
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.later == nil {
		l.later = map[string]time.Time{}
	}
	l.later[t.Name] = time.Now().Add(loginPause)
	return fmt.Errorf("user %s of %s does not get in: %w", c.User, c.From, failed)
}

func (l *Logins) adoptAt(
	ctx context.Context, s remote.Shell, addr netip.Addr, host string, c Credentials, installed, hostKey string,
) error {
	keep := func(key string) error {
		hostKey = key
		return l.save(host, pin{Installed: installed, HostKey: key})
	}
	if err := s.Adopt(ctx, addr, hostKey, c.Password, keep); err != nil {
		return err
	}
	return l.save(host, pin{Installed: installed, HostKey: hostKey, Locked: true})
}

// ask asks what is installed on a node. If no key opens it, a default user and password does, where its owner gave
// them.
func (e *Engine) ask(
	ctx context.Context, question func(context.Context, shell.Target) shell.Answer, t shell.Target, what string,
) shell.Answer {
	if e.Logins == nil {
		return question(ctx, t)
	}

	e.Logins.aim(&t, what)
	a := question(ctx, t)
	if a.Verdict != shell.OtherMachine && a.Verdict != shell.Locked {
		return a
	}

	switch err := e.Logins.adopt(ctx, &t, what); {
	case err == nil:
		e.Logger.Info("logged in with the image's default user, whose password is taken away", "node", t.Name)
		return question(ctx, t)
	case !errors.Is(err, errNoCredentials):
		a.Verdict, a.Text = shell.Locked, err.Error()
	}

	return a
}

// HostKeyOf is the SSH host key by which a verified node was met, as in authorized_keys, and whether a default user was
// logged in to for it. Of a node that is not verified it is the one that its ramdisk told, "" if there is none.
func (e *Engine) HostKeyOf(node string) (key string, adopted bool) {
	e.mu.Lock()
	installed := ""
	if s := e.nodes[site.Name(node)]; s != nil {
		installed = s.installed
	}
	e.mu.Unlock()
	if key := e.Logins.HostKey(node, installed); key != "" {
		return key, true
	}

	told, err := e.HostKey(site.Name(node))
	if errors.Is(err, vault.ErrNoHostKey) {
		return "", false
	}
	if err != nil {
		e.Logger.Error("host key cannot be read", "node", node, "error", err)
		return "", false
	}

	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(told))), false
}
