package virtualrack

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Files in sshDir.
const (
	keyFile    = "id_ed25519"
	knownFile  = "known_hosts"
	configFile = "config"
)

// mintKey makes the rack's key, once, and returns its public half as in authorized_keys.
func mintKey(dir string) (public string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("mint key: %w", err)
	}

	path := filepath.Join(dir, keyFile)
	if signer, err := readKey(dir); err == nil {
		return authorizedKey(signer.PublicKey()), nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}

	_, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", fmt.Errorf("mint key: %w", err)
	}

	block, err := ssh.MarshalPrivateKey(secret, "lab")
	if err != nil {
		return "", fmt.Errorf("mint key: %w", err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		return "", fmt.Errorf("mint key: %w", err)
	}

	signer, err := ssh.NewSignerFromSigner(secret)
	if err != nil {
		return "", fmt.Errorf("mint key: %w", err)
	}

	return authorizedKey(signer.PublicKey()), nil
}

func authorizedKey(key ssh.PublicKey) string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " lab"
}

func readKey(dir string) (ssh.Signer, error) {
	text, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}

	signer, err := ssh.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}

	return signer, nil
}

// trustFirst accepts the appliance's host key if it is the one in the file, or writes it there
// if there is none yet: there is nobody else on this wire to take for the appliance.
func trustFirst(path string, key ssh.PublicKey) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read known hosts: %w", err)
	}

	for rest := text; len(rest) > 0; {
		_, hosts, known, _, after, err := ssh.ParseKnownHosts(rest)
		if err != nil {
			break // the end, or a line that says nothing
		}

		rest = after
		if len(hosts) == 1 && hosts[0] == Appliance {
			if string(known.Marshal()) == string(key.Marshal()) {
				return nil
			}
			return fmt.Errorf("the appliance has another host key than at first, see %s", path)
		}
	}

	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write known hosts: %w", err)
	}

	_, err = fmt.Fprintf(f, "%s %s", Appliance, ssh.MarshalAuthorizedKey(key))
	return errors.Join(err, f.Close())
}

// sshConfig is a configuration by which ssh reaches every machine of the rack: the appliance by
// the supervisor, the nodes through the appliance. program is the firstlight command.
func sshConfig(r Rack, dir, program string) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	// In ssh_config(5) a percent sign begins a token, and double quotes hold blanks together.
	plain := func(s string) string { return `"` + strings.ReplaceAll(s, "%", "%%") + `"` }
	at := func(name string) string { return plain(filepath.Join(dir, sshDir, name)) }
	var b strings.Builder
	dial := fmt.Sprintf("\tProxyCommand %s lab dial --dir %s %%n %%p\n",
		strings.ReplaceAll(quote(program), "%", "%%"), strings.ReplaceAll(quote(dir), "%", "%%"))
	fmt.Fprintf(&b, "Host %s\n\tUser root\n%s", Appliance, dial)
	if r.Order.System != "" {
		fmt.Fprintf(&b, "Host %s\n\tUser root\n%s", System, dial)
	}
	for _, n := range r.Nodes {
		if r.Order.Discover { // its address is leased; the supervisor knows it
			fmt.Fprintf(&b, "Host %s\n\tUser firstlight\n%s", n.Name, dial)
			continue
		}

		fmt.Fprintf(
			&b, "Host %s\n\tUser firstlight\n\tHostName %s\n\tHostKeyAlias %s\n\tProxyJump %s\n", n.Name, n.Address,
			n.Name, Appliance,
		)
	}

	fmt.Fprintf(&b, "Host *\n\tIdentityFile %s\n\tIdentitiesOnly yes\n\tUserKnownHostsFile %s\n\tStrictHostKeyChecking accept-new\n\tLogLevel ERROR\n\tServerAliveInterval 30\n",
		at(keyFile), at(knownFile))
	return b.String()
}
