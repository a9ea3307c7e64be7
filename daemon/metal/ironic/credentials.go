package ironic

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// User is the one account of the API: the operator and the appliance's shell use it.
const User = "firstlight"

// The password is 256 random bits, so bcrypt's cost guards nothing: it is kept low,
// because Ironic checks it at every request.
const (
	passwordBytes = 32
	bcryptCost    = bcrypt.MinCost
)

// Credentials are how Ironic is spoken to. They are minted on the appliance.
type Credentials struct {
	Username, Password string
	HTPasswd           string // one line of htpasswd with a bcrypt hash, as http_basic_auth_user_file wants it
}

// String keeps the password out of logs.
func (c Credentials) String() string { return c.Username + ":[redacted]" }

// OpenCredentials reads the credentials in dir, minting them if they are absent or torn.
// Password and hash stand in one file, so that a power cut cannot part them.
func OpenCredentials(dir string) (Credentials, error) {
	path := credentialsFile(dir)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Credentials{}, fmt.Errorf("read ironic's credentials: %w", err)
	}

	password, htpasswd, _ := strings.Cut(strings.TrimSuffix(string(text), "\n"), "\n")
	_, hash, _ := strings.Cut(htpasswd, ":")
	if password != "" && bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil {
		return Credentials{User, password, htpasswd}, nil
	}

	return mintCredentials(path)
}

// RotateCredentials mints others in their place. Whoever speaks to Ironic gets them when it next opens them; Ironic
// itself when its pod is made of them.
func RotateCredentials(dir string) error {
	_, err := mintCredentials(credentialsFile(dir))
	return err
}

func credentialsFile(dir string) string { return filepath.Join(dir, "ironic.credentials") }

func mintCredentials(path string) (Credentials, error) {
	random := make([]byte, passwordBytes)
	if _, err := rand.Read(random); err != nil {
		return Credentials{}, err
	}

	password := base64.RawURLEncoding.EncodeToString(random)
	sum, err := bcrypt.GenerateFromPassword([]byte(password), bcryptCost)
	if err != nil {
		return Credentials{}, fmt.Errorf("hash ironic's password: %w", err)
	}

	c := Credentials{User, password, User + ":" + string(sum)}
	return c, write(path, []byte(c.Password+"\n"+c.HTPasswd+"\n"))
}

func write(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(path, data, 0o600)
}
