// Package vault keeps what must stay secret, on DATA: the appliance's authority, its passwords and its SSH keys.
package vault

import (
	"sync"
	"time"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/appliance/ca"
)

// SecretDir holds the passwords and keys that are minted by whoever uses them.
const SecretDir = stick.DataDir + "/secret"

const (
	authorityDir    = stick.DataDir + "/ca"
	bmcAuthorityDir = authorityDir + "/bmc"
	sshDir          = stick.DataDir + "/ssh"
)

// Vault opens secrets, and mints those that are not there.
type Vault struct {
	Keys *Keys

	// Names are the DNS names that the authority is to sign for, with those below them, asked when it is minted; nil: any.
	Names func() []string

	salt func() string // of password hashes: the same on one appliance for good

	mu        sync.Mutex
	authority *ca.Authority
	forBMCs   *ca.Authority
	hashes    map[string]string // of passwords; a hash costs a tenth of a second
}

// New returns the appliance's. salt goes into the hashes of passwords.
func New(salt func() string) *Vault {
	return &Vault{Keys: &Keys{Dir: sshDir}, salt: salt, hashes: map[string]string{}}
}

// Authority is the appliance's, opened or minted when it is first asked for.
func (v *Vault) Authority() (*ca.Authority, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.authority == nil {
		var names []string
		if v.Names != nil {
			names = v.Names()
		}
		a, err := ca.Open(authorityDir, time.Now, names...)
		if err != nil {
			return nil, err
		}
		v.authority = a
	}

	return v.authority, nil
}

// BMCAuthority signs what Ironic is shown in place of BMCs' certificates, for whatever names BMCs have. Ironic alone
// trusts it.
func (v *Vault) BMCAuthority() (*ca.Authority, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.forBMCs == nil {
		a, err := ca.Open(bmcAuthorityDir, time.Now)
		if err != nil {
			return nil, err
		}
		v.forBMCs = a
	}

	return v.forBMCs, nil
}

// PasswordHash returns the crypt(5) hash of a password, the same one every time.
func (v *Vault) PasswordHash(password string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h, ok := v.hashes[password]; ok {
		return h, nil
	}

	h, err := site.NewSecret(password).CryptHash(v.salt())
	if err == nil {
		v.hashes[password] = h
	}

	return h, err
}
