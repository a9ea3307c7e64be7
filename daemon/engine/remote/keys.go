package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// Keys are what a person logs in with. Those of an agent sign until Close.
type Keys struct {
	signers []ssh.Signer
	agent   net.Conn
}

// Close ends the connection to the agent.
func (k Keys) Close() {
	if k.agent != nil {
		_ = k.agent.Close()
	}
}

// ReadKey reads the one key of a file.
func ReadKey(path string) (Keys, error) {
	signer, err := readSigner(path)
	if err != nil {
		return Keys{}, err
	}
	return Keys{signers: []ssh.Signer{signer}}, nil
}

// ReadUserKeys are the keys of the agent at a socket, which may be "", and of the usual files in a folder, as ssh(1)
// tries them. A file with a passphrase is left out, as long as there is another key.
func ReadUserKeys(socket, dir string) (Keys, error) {
	keys := readAgent(socket)
	var unread error
	for _, name := range []string{"id_rsa", "id_ecdsa", "id_ed25519"} {
		signer, err := readSigner(filepath.Join(dir, name))
		switch {
		case err == nil:
			keys.signers = append(keys.signers, signer)
		case !errors.Is(err, fs.ErrNotExist):
			unread = err
		}
	}
	if len(keys.signers) > 0 {
		return keys, nil
	}

	keys.Close()
	if unread != nil {
		return Keys{}, unread
	}
	return Keys{}, fmt.Errorf("neither the agent nor %s has an SSH key; make one with ssh-keygen", dir)
}

// readAgent has no keys if no agent answers.
func readAgent(socket string) Keys {
	if socket == "" {
		return Keys{}
	}

	conn, err := net.Dial("unix", socket)
	if err != nil {
		return Keys{}
	}

	signers, err := agent.NewClient(conn).Signers()
	if err != nil {
		_ = conn.Close()
		return Keys{}
	}

	return Keys{signers, conn}
}

func readSigner(path string) (ssh.Signer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read SSH key: %w", err)
	}

	signer, err := ssh.ParsePrivateKey(text)
	var locked *ssh.PassphraseMissingError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("read SSH key %s: it has a passphrase; give it to the agent with ssh-add %s", path, path)
	}
	if err != nil {
		return nil, fmt.Errorf("read SSH key %s: %w; name the file of the private half", path, err)
	}

	return signer, nil
}
