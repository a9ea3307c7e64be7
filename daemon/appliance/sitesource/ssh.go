package sitesource

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	fluxgit "github.com/fluxcd/pkg/git"
	"github.com/fluxcd/pkg/ssh/knownhosts"
	gitclient "github.com/go-git/go-git/v5/plumbing/transport/client"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"golang.org/x/crypto/ssh"
	sshhosts "golang.org/x/crypto/ssh/knownhosts"
)

// sshLogin is how a host is logged in to by SSH, and how far that came.
type sshLogin struct {
	user    string
	key     ssh.Signer
	address string          // of the host, with its port
	known   []ssh.PublicKey // that the host may have

	refused error // why the host was not logged in to
	offered bool  // the key was shown to the host
}

// useSSH has all repositories with ssh logged in to by the key and the hosts of g alone: no agent, no file of a home
// directory and no configuration of ssh(1) is asked.
func useSSH(g Git, u *url.URL, auth *fluxgit.AuthOptions) (*sshLogin, error) {
	port := u.Port()
	if port == "" {
		port = "22"
	}
	l := &sshLogin{user: g.Username, address: net.JoinHostPort(u.Hostname(), port)}
	var err error
	if l.key, err = ssh.ParsePrivateKey([]byte(g.PrivateKey)); err != nil {
		return nil, fmt.Errorf("read appliance.follow.git.privateKey: %w", err)
	}
	if l.known, err = readHostKeys(g.KnownHosts, l.address); err != nil {
		return nil, err
	}

	gitssh.DefaultSSHConfig = nil
	gitclient.InstallProtocol("ssh", gitssh.NewClient(&ssh.ClientConfig{
		User:              l.user,
		Auth:              []ssh.AuthMethod{ssh.PublicKeysCallback(l.offer)},
		HostKeyCallback:   l.checkHost,
		HostKeyAlgorithms: hostKeyAlgorithms(l.known),
	}))
	// Flux would ask the files of a home directory for what is not given here, too; the configuration above holds.
	auth.Username, auth.Identity = l.user, []byte(g.PrivateKey)
	auth.KnownHosts = []byte(strings.Join(g.KnownHosts, "\n") + "\n")
	return l, nil
}

// readHostKeys are the keys that the lines, as in known_hosts, have for the host at an address.
func readHostKeys(lines []string, address string) (keys []ssh.PublicKey, err error) {
	for _, line := range lines {
		_, _, key, _, _, err := ssh.ParseKnownHosts([]byte(line))
		if err != nil {
			return nil, fmt.Errorf("read appliance.follow.git.knownHosts: %w", err)
		}
		check, _, err := knownhosts.New([]byte(line))
		if err != nil {
			return nil, fmt.Errorf("read appliance.follow.git.knownHosts: %w", err)
		}
		if check(address, &net.TCPAddr{}, key) == nil { // the line is of this host
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// hostKeyAlgorithms are those of the known keys, then all others: a host that has several keys shows the one that is
// known, and one that has none of these shows another, whose fingerprint can be told. Certificates are not asked for.
func hostKeyAlgorithms(known []ssh.PublicKey) (all []string) {
	var others []string
	for _, algorithm := range ssh.SupportedAlgorithms().HostKeys {
		isKnown := slices.ContainsFunc(known, func(key ssh.PublicKey) bool {
			return algorithm == key.Type() || key.Type() == ssh.KeyAlgoRSA && strings.HasPrefix(algorithm, "rsa-sha2-")
		})
		switch {
		case strings.Contains(algorithm, "-cert-"):
		case isKnown:
			all = append(all, algorithm)
		default:
			others = append(others, algorithm)
		}
	}
	return append(all, others...)
}

// offer is the key for a host that was checked.
func (l *sshLogin) offer() ([]ssh.Signer, error) {
	l.offered = true
	return []ssh.Signer{l.key}, nil
}

// checkHost refuses a host that has none of the known keys.
func (l *sshLogin) checkHost(_ string, _ net.Addr, shown ssh.PublicKey) error {
	var known []string
	for _, key := range l.known {
		if slices.Equal(key.Marshal(), shown.Marshal()) {
			return nil
		}
		known = append(known, ssh.FingerprintSHA256(key))
	}

	host := sshhosts.Normalize(l.address)
	if len(known) == 0 {
		l.refused = fmt.Errorf("no line of appliance.follow.git.knownHosts names %s, which shows the %s key %s; ask its owner whether "+
			"this is its fingerprint, then add the line that ssh-keyscan prints for it", host, shown.Type(), ssh.FingerprintSHA256(shown))
	} else {
		l.refused = fmt.Errorf("%s shows the %s key %s, but appliance.follow.git.knownHosts has %s for it; another machine may answer in "+
			"its place, so ask its owner, and replace the line only if the host has a new key", host, shown.Type(),
			ssh.FingerprintSHA256(shown), strings.Join(known, ", "))
	}
	return l.refused
}

// explain is an error of the repository with what a person needs to know of the login; l is nil if there was none.
func (l *sshLogin) explain(err error) error {
	switch {
	case l == nil:
		return err
	case l.refused != nil:
		return l.refused
	case l.offered:
		return fmt.Errorf("%w; user %s of %s must be allowed to read it with the key %s, which is that of "+
			"appliance.follow.git.privateKey", err, l.user, sshhosts.Normalize(l.address), ssh.FingerprintSHA256(l.key.PublicKey()))
	}
	return err
}
