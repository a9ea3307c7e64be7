package vault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"firstlight.dev/firstlight/assets/stick"
)

// AgentSocket is where the appliance's log-in to nodes may be used by whoever is root on the appliance, by the protocol
// of SSH agents (draft-ietf-sshm-ssh-agent): what logs in asks for signatures, and the key stays in this process. Its
// directory holds nothing else.
const AgentSocket = stick.RunDir + "/agent/ssh.sock"

// ServeAgent serves the agent at a socket until ctx ends.
func (k *Keys) ServeAgent(ctx context.Context, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return fmt.Errorf("serve log-in to nodes: %w", err)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("serve log-in to nodes: %w", err)
	}

	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("serve log-in to nodes: %w", err)
	}
	defer l.Close()
	if err := os.Chmod(socket, 0o600); err != nil {
		return fmt.Errorf("serve log-in to nodes: %w", err)
	}

	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("serve log-in to nodes: %w", err)
		}

		go func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			_ = agent.ServeAgent(signing{k}, c) // it ends with the client
		}()
	}
}

// signing is an agent that signs with the appliance's log-in and does nothing else.
type signing struct{ keys *Keys }

var errOnlySigns = errors.New("this agent only signs")

func (s signing) List() (keys []*agent.Key, err error) {
	all, err := s.keys.Signers()
	for _, signer := range all {
		key := signer.PublicKey()
		keys = append(keys, &agent.Key{Format: key.Type(), Blob: key.Marshal(), Comment: "appliance"})
	}
	return keys, err
}

func (s signing) Sign(key ssh.PublicKey, data []byte) (*ssh.Signature, error) {
	all, err := s.keys.Signers()
	if err != nil {
		return nil, err
	}

	for _, signer := range all {
		if string(key.Marshal()) == string(signer.PublicKey().Marshal()) {
			return signer.Sign(nil, data) // ed25519 needs no source of randomness
		}
	}

	return nil, errors.New("this agent has another key")
}

func (s signing) Signers() ([]ssh.Signer, error) { return nil, errOnlySigns }
func (signing) Add(agent.AddedKey) error         { return errOnlySigns }
func (signing) Remove(ssh.PublicKey) error       { return errOnlySigns }
func (signing) RemoveAll() error                 { return errOnlySigns }
func (signing) Lock([]byte) error                { return errOnlySigns }
func (signing) Unlock([]byte) error              { return errOnlySigns }
