package site

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

// newPrivateKey is one as ssh-keygen writes it, with a passphrase unless that is "".
func newPrivateKey(t *testing.T, passphrase string) string {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(key, "rack-7")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "rack-7", []byte(passphrase))
	}
	require.NoError(t, err)
	return string(pem.EncodeToMemory(block))
}

// writeFollow is a document that follows a repository, with a key.
func writeFollow(url, key, more string) string {
	return fmt.Sprintf("name: rack-7\nappliance:\n  follow:\n    git:\n      url: %s\n      privateKey: |\n        %s\n%s", url,
		strings.ReplaceAll(strings.TrimSpace(key), "\n", "\n        "), more)
}

// TestAPrivateKeyIsASecret wherever a document is shown, and a change of it is a change of the site.
func TestAPrivateKeyIsASecret(t *testing.T) {
	text := string(readFile(t, "testdata/valid/follow-ssh.yaml"))
	s, problems := Load("site.yaml", []byte(text))
	require.Empty(t, problems.String())
	key := s.Appliance.Follow.Git.PrivateKey.Reveal()
	require.Contains(t, key, "-----BEGIN OPENSSH PRIVATE KEY-----\n")
	middle := strings.Split(key, "\n")[2]
	require.Contains(t, text, middle)

	masked, err := Mask([]byte(text))
	require.NoError(t, err)
	hidden, err := s.YAML()
	require.NoError(t, err)
	inJSON, err := s.MarshalJSON()
	require.NoError(t, err)
	for _, shown := range []string{string(masked), string(hidden), string(inJSON), fmt.Sprintf("%v %+v %#v", s, *s.Appliance.Follow.Git, s.Appliance.Follow.Git.PrivateKey)} {
		assert.NotContains(t, shown, middle)
	}
	assert.Contains(t, string(masked), "      privateKey: \"[redacted]\"\n      knownHosts:\n", "the rest is as it was written")
	assert.Equal(t, text, string(Unmask(masked, []byte(text))))
	plain, err := PlainSecrets([]byte(text))
	require.NoError(t, err)
	assert.Equal(t, []string{"/appliance/follow/git/privatekey"}, plain)

	other, problems := Load("site.yaml", []byte(writeFollow("ssh://git@git.example/racks.git", newPrivateKey(t, ""),
		"      knownHosts: [git.example "+knownKey(s)+"]\n    path: sites/rack-7\n")))
	require.Empty(t, problems.String())
	assert.Equal(t, []Difference{{Section: "appliance", Change: Changed, Keys: []string{"follow.git.privateKey"}}}, Compare(s, other))

	moved := strings.Replace(string(masked), "git.example/racks", "elsewhere.example/racks", 1)
	_, problems = Load("site.yaml", Unmask([]byte(moved), []byte(text)))
	assert.Contains(t, problems.String(), `appliance.follow.git.privateKey: "[redacted]" stands for a secret`)
}

// knownKey is the key of the one line of knownHosts.
func knownKey(s *Site) string {
	_, key, _ := strings.Cut(string(s.Appliance.Follow.Git.KnownHosts[0]), " ")
	return key
}

func TestWhatLogsInFitsTheAddress(t *testing.T) {
	host := "      knownHosts: [git.example ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKeTxOJMvPRXaKbQnfMEYxgb0jH4mD2eNOHAqpZ4c8ws]\n"
	key := newPrivateKey(t, "")
	for _, c := range []struct{ text, says string }{
		{writeFollow("ssh://git.example:2222/racks.git", key, host), ""},
		{writeFollow("ssh://git@git.example/racks.git", key, host+"      username: git\n"), ""},
		{writeFollow("ssh://git@git.example/racks.git", newPrivateKey(t, "hunter2"), host), "privateKey: this key has a passphrase"},
		{writeFollow("https://git.example/racks.git", key, ""), "privateKey: only ssh:// logs in with a key"},
		{writeFollow("https://git.example/racks.git", key, host), "knownHosts: only hosts of ssh:// are known by their keys"},
		{writeFollow("ssh://git:hunter2@git.example/racks.git", key, host), "url: a password does not belong into an address"},
		{writeFollow("ssh://git.example", key, host), "url: it does not say which repository"},
		{writeFollow("git@git.example:racks.git", key, host), "url: the short form of an address is not read; write ssh://git@git.example/racks.git"},
		{writeFollow("git.example:/srv/racks.git", key, host), "write ssh://git.example/srv/racks.git"},
		{writeFollow("git:hunter2@git.example:racks.git", key, host), "url: this is not an address of a repository"},
		{writeFollow("file:///srv/racks.git", key, host), "url: this is not an address of a repository"},
		{"appliance: {follow: {git: {url: HTTP://git.example/racks.git}}}", "url: with http, whoever is on the way decides"},
		{"appliance: {follow: {git: {url: SSH://git.example/racks.git}}}", "privateKey: it is missing"},
	} {
		s, problems := Load("site.yaml", []byte(c.text))
		assert.NotContains(t, problems.String(), "hunter2")
		assert.NotContains(t, problems.String(), strings.Split(key, "\n")[2])
		if c.says == "" {
			require.Empty(t, problems.String(), c.text)
			assert.Equal(t, "git", s.WithDefaults().Appliance.Follow.Git.Username)
			continue
		}
		assert.Contains(t, problems.String(), c.says)
	}

	s, problems := Load("site.yaml", []byte(writeFollow("ssh://rack-7@git.example/racks.git", key, host)))
	require.Empty(t, problems.String())
	assert.Equal(t, "rack-7", s.WithDefaults().Appliance.Follow.Git.Username)
}
