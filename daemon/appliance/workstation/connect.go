package workstation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"firstlight.dev/firstlight/assets/atomicfile"
	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/engine/remote"
)

// sshUser is the only one that the appliance's sshd lets in.
const sshUser = "root"

// Connection is a log-in to one appliance.
type Connection struct {
	Appliance
	ssh *remote.Connection
}

// Connect logs in to an appliance. A host key that neither the user's known_hosts nor the store has is believed once if
// pinned is not nil: at the first log-in. It is then called with the key's fingerprint.
func (s Store) Connect(ctx context.Context, a Appliance, pinned func(fingerprint string)) (*Connection, error) {
	home, _ := os.UserHomeDir()
	sshDir := filepath.Join(home, ".ssh")
	keys, err := readKeys(a.Identity, sshDir)
	if err != nil {
		return nil, fmt.Errorf("log in to %s: %w (firstlight login --identity FILE names another key)", a.Host, err)
	}
	defer keys.Close()

	known := s.path(a.Host, knownFile)
	c, err := remote.Login{
		Host:   addPort(a.Host),
		User:   sshUser,
		Keys:   keys,
		Hosts:  &remote.Hosts{Known: filepath.Join(sshDir, knownFile), Learned: known},
		Pinned: pinned,
	}.Connect(ctx)
	if err != nil {
		return nil, explainLogin(a.Host, known, err)
	}

	return &Connection{a, c}, nil
}

// saveHostKeys stores which host keys an appliance may show from now on: it has said so itself, over a connection with one
// that was known. One of an earlier version says nothing.
func (s Store) saveHostKeys(a Appliance, keys []string) error {
	var text strings.Builder
	for _, k := range keys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(k))
		if err != nil {
			return fmt.Errorf("read the host keys of %s: %w", a.Host, err)
		}
		text.WriteString(knownhosts.Line([]string{knownhosts.Normalize(addPort(a.Host))}, key) + "\n")
	}
	if text.Len() == 0 {
		return nil
	}
	if err := atomicfile.WriteChanged(s.path(a.Host, knownFile), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("store the host keys of %s: %w", a.Host, err)
	}
	return nil
}

func readKeys(identity, sshDir string) (remote.Keys, error) {
	if identity != "" {
		return remote.ReadKey(identity)
	}
	return remote.ReadUserKeys(os.Getenv("SSH_AUTH_SOCK"), sshDir)
}

// explainLogin says what a person can do about a log-in that failed. known is the store's file of host keys.
func explainLogin(host, known string, err error) error {
	var changed *remote.HostKeyChangedError
	var noAnswer *remote.ConnectError
	var name *net.DNSError
	switch {
	case errors.As(err, &changed) && changed.File == known:
		return fmt.Errorf(
			"log in to %s: its host key is none that it had at the last log-in: another machine has this address, the "+
				"appliance is a new one, or its key was replaced twice since; if so, run firstlight logout %s and log in again", host, host,
		)
	case errors.As(err, &changed):
		return fmt.Errorf("log in to %s: %w", host, changed)
	case errors.Is(err, remote.ErrForgottenHost):
		return fmt.Errorf("log in to %s: %w; run firstlight login %s", host, remote.ErrForgottenHost, host)
	case errors.As(err, &name):
		return fmt.Errorf("reach %s: %w; use an address of the appliance, as its screen shows it", host, err)
	case errors.As(err, &noAnswer):
		return fmt.Errorf(
			"reach %s by SSH: %w; is it on, reached from here, and is there a key in access.sshKeys of its site.yaml?", host, err,
		)
	case remote.IsRefused(err):
		return fmt.Errorf(
			"log in to %s as %s: it accepts no key of yours; add its public half to access.sshKeys of site.yaml, or name "+
				"another key with firstlight login --identity", host, sshUser,
		)
	}
	return fmt.Errorf("log in to %s: %w", host, err)
}

// Close ends the connection.
func (c *Connection) Close() { c.ssh.Close() }

// notFound is the exit code of a shell that knows no such program (POSIX, 2.8.2).
const notFound = 127

// Run runs firstlightd on the appliance. A commandline.ExitError is that program's own end.
func (c *Connection) Run(ctx context.Context, streams remote.Streams, words ...string) error {
	code, err := c.ssh.Run(ctx, streams, append([]string{"firstlightd"}, words...)...)
	switch {
	case err != nil:
		return fmt.Errorf("run firstlightd %s on %s: %w; it may have ended or not", words[0], c.Host, err)
	case code == notFound:
		return fmt.Errorf("%s answers by SSH and is no appliance: it has no firstlightd; use the appliance's address", c.Host)
	case code != 0:
		return &commandline.ExitError{Program: "firstlightd on " + c.Host, Code: code}
	}
	return nil
}

// Forward passes connections to l on to the appliance's API until ctx ends.
func (c *Connection) Forward(ctx context.Context, l net.Listener, access Access) error {
	if err := c.ssh.Forward(ctx, l, access.Server); err != nil {
		return fmt.Errorf("forward the API of %s: %w; run firstlight proxy again", c.Host, err)
	}
	return nil
}
