package site

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/yamldoc"
)

// PrivateKey is the private half of an SSH key, OpenSSH's form or PEM, without a passphrase. It shows as a Secret does.
type PrivateKey struct{ Secret }

// ParseText reads one; its messages have nothing of the text.
func (k *PrivateKey) ParseText(s string) error {
	if s == redacted {
		return k.Secret.ParseText(s)
	}

	_, err := ssh.ParsePrivateKey([]byte(s))
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return errors.New("this key has a passphrase, which no one is there to type; make one for appliances alone, without: " +
			"ssh-keygen -t ed25519 -N '' -f firstlight")
	case err != nil:
		return errors.New("this is no private key of SSH; paste all lines of a file such as id_ed25519 below 'privateKey: |'")
	}

	k.Secret = NewSecret(strings.TrimSpace(s) + "\n")
	return nil
}

// KnownHost is a public key of a host: a line as in known_hosts (sshd(8)), with one name or several, and no marker.
type KnownHost string

func (h KnownHost) String() string { return string(h) }

// ParseText reads one.
func (h *KnownHost) ParseText(s string) error {
	s = strings.TrimSpace(s)
	if strings.Contains(s, "PRIVATE KEY") {
		return errors.New("this is a private key, and a line of known_hosts belongs here; put the key into privateKey")
	}

	marker, _, _, _, _, err := ssh.ParseKnownHosts([]byte(s))
	if err != nil || !yamldoc.IsPrintable(s) {
		return fmt.Errorf("%s is no key of a host; paste a line that ssh-keyscan HOST prints, such as git.example ssh-ed25519 AAAA…",
			yamldoc.Quote(s))
	}
	if marker != "" {
		return fmt.Errorf("lines with @%s are not read; give the line of the host's own key", marker)
	}

	*h = KnownHost(s)
	return nil
}

// parts are the scheme of an address, in small letters, and the user that it names; "" for what it has not.
func (u GitURL) parts() (scheme, user string) {
	v, err := url.Parse(string(u))
	if err != nil {
		return "", ""
	}
	return v.Scheme, v.User.Username()
}

// user is whom the appliance logs in as.
func (g *GitRepository) user() string {
	_, user := g.URL.parts()
	return cmp.Or(g.Username, user, "git")
}

// checkGitLogin checks that what logs in is what the scheme of the address takes.
func (r *reader) checkGitLogin(at string, g *GitRepository) {
	scheme, user := g.URL.parts()
	if scheme != "ssh" {
		if !g.PrivateKey.IsZero() {
			r.Report(at+".privateKey", "only ssh:// logs in with a key; write ssh://USER@HOST/PATH in url, or remove the line")
		}
		if len(g.KnownHosts) > 0 {
			r.Report(at+".knownHosts", "only hosts of ssh:// are known by their keys; write ssh://USER@HOST/PATH in url, or remove the lines")
		}
		return
	}

	if g.PrivateKey.IsZero() {
		r.Report(at+".privateKey", "it is missing, and ssh:// logs in with nothing else; add a key with the right to read")
	}
	if len(g.KnownHosts) == 0 {
		r.Report(at+".knownHosts", "it is missing, and any host could answer; add a line that ssh-keyscan HOST prints, after its owner "+
			"has confirmed the key")
	}
	if !g.Password.IsZero() {
		r.Report(at+".password", "ssh:// logs in with privateKey alone; remove the line")
	}
	if g.CA != "" {
		r.Report(at+".ca", "there is no certificate with ssh; its host is known by knownHosts, remove the line")
	}
	if g.Username != "" && user != "" && g.Username != user {
		r.Report(at+".username", "url names user %s; remove the line, or the user there", yamldoc.Quote(user))
	}
}
