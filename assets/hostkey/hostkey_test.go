package hostkey

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"sigs.k8s.io/yaml"
)

// newKey is a key as a ramdisk makes it.
func newKey(t *testing.T) (private []byte, public string) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	require.NoError(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(block), string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
}

// TestAKeyTakesItsPlace: what cloud-init reads from the filled document is the key, and nothing else has moved.
func TestAKeyTakesItsPlace(t *testing.T) {
	document, err := yaml.Marshal(map[string]any{"ssh_keys": map[string]string{"ed25519_private": Place()}, "a": "before", "z": "behind"})
	require.NoError(t, err)
	quoted := Quote(string(document))
	drive := "head" + quoted + "tail"
	for range 3 {
		private, _ := newKey(t)
		filled, had, err := Fill([]byte(drive), private)
		require.NoError(t, err)
		assert.True(t, had)
		assert.Len(t, filled, len(drive), "files of a config drive would move")
		assert.NotContains(t, string(filled), Place())

		var read struct {
			A, Z string
			Keys map[string]string `json:"ssh_keys"`
		}
		require.NoError(t, yaml.Unmarshal(filled[4:len(filled)-4], &read))
		assert.Equal(t, string(private), read.Keys["ed25519_private"])
		assert.Equal(t, "before behind", read.A+" "+read.Z)
	}

	same, had, err := Fill([]byte("nothing"), nil)
	require.NoError(t, err)
	assert.False(t, had)
	assert.Equal(t, "nothing", string(same))
	_, _, err = Fill([]byte(drive), []byte("short"))
	assert.EqualError(t, err, "a host key has 5 bytes, not 387")
}

// TestAKeyTakesItsPlaceInBase64: what Ignition reads from the filled document is the key.
func TestAKeyTakesItsPlaceInBase64(t *testing.T) {
	document := `{"source":"data:;base64,` + Base64Place() + `"}`
	assert.False(t, strings.Contains(document, Place()), "one place is a part of the other")
	assert.True(t, HasPlace([]byte(document)))

	private, _ := newKey(t)
	filled, had, err := Fill([]byte(document), private)
	require.NoError(t, err)
	assert.True(t, had)
	assert.Len(t, filled, len(document))

	var file struct{ Source string }
	require.NoError(t, json.Unmarshal(filled, &file))
	_, encoded, _ := strings.Cut(file.Source, ",")
	key, err := base64.StdEncoding.DecodeString(encoded)
	require.NoError(t, err)
	assert.Equal(t, string(private), string(key))
}

func TestParse(t *testing.T) {
	_, public := newKey(t)
	for _, told := range []string{public, public[:len(public)-1] + " root@ramdisk\n", "  " + public} {
		key, err := Parse(told)
		require.NoError(t, err)
		assert.Equal(t, public, key+"\n")
	}
	for _, told := range []string{
		"", "ssh-ed25519", "x", public + public, "from=\"*\" " + public,
		"ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=",
	} {
		_, err := Parse(told)
		assert.Error(t, err, told)
	}
}
