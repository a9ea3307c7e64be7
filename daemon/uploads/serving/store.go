package serving

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"firstlight.dev/firstlight/assets/artifact"
)

// storeDir is where the pod has the authority of a store elsewhere.
const storeDir = "/etc/artifacts-store"

// Limits are what the API allows.
type Limits struct {
	Quota  string        // what each owner may announce, such as 50Gi; "": whatever there is room for
	Owners []Quota       // owners with another one
	Expiry time.Duration // 0: the agent's own
}

// Quota is what one owner may announce.
type Quota struct{ Owner, Amount string }

// flags are those of the agent's command line.
func (l Limits) flags() (all []string) {
	if l.Quota != "" {
		all = append(all, "--quota", l.Quota)
	}

	for _, o := range l.Owners {
		all = append(all, "--quota-of", o.Owner+"="+o.Amount)
	}

	if l.Expiry != 0 {
		all = append(all, "--expiry", l.Expiry.String())
	}

	return all
}

// Keys are how the agent speaks to an S3 store.
type Keys struct{ Access, Secret string }

// String keeps the secret out of logs.
func (k Keys) String() string { return k.Access + ":[redacted]" }

// Store is an S3 store elsewhere.
type Store struct {
	Endpoint string // http(s)://HOST:PORT
	Region   string
	Keys     Keys
	CA       []byte // of its certificate, PEM; nil with http
}

// storeFlags tell the agent where its store is. What is in a store elsewhere has no file here that
// the boot server, the repository or the registry could have.
func (p Pod) storeFlags() []string {
	if p.Store == nil {
		return []string{"--publish", dataDir, "--stick", artifact.StickArchives,
			"--registry", p.Registry, "--registry-cert", tlsDir + "/write.crt", "--registry-key", tlsDir + "/write.key", "--registry-ca", tlsDir + "/ca.crt"}
	}

	all := []string{"--store", p.Store.Endpoint, "--withdraw", dataDir}
	if p.Store.Region != "" {
		all = append(all, "--store-region", p.Store.Region)
	}

	if len(p.Store.CA) > 0 {
		all = append(all, "--store-ca", storeDir+"/ca.crt")
	}

	return all
}

// s3Flags have the agent serve S3.
func (p Pod) s3Flags() []string {
	if !p.S3 {
		return nil
	}
	return []string{"--s3-listen", fmt.Sprintf(":%d", artifact.PortS3), "--s3-keys", Namespace + "/" + artifact.KeysSecret}
}

// storeSecret is what the pod must know of its store, and nobody else.
func (p Pod) storeSecret() map[string][]byte {
	k, ca := Keys{}, []byte{}
	if p.Store != nil {
		k, ca = p.Store.Keys, p.Store.CA
	}
	return map[string][]byte{"access": []byte(k.Access), "secret": []byte(k.Secret), "ca": ca}
}

// storeSecretDigest changes with the store's secret, which the pod reads only when it starts; a certificate of its
// own it reads anew by itself.
func (p Pod) storeSecretDigest() string {
	s, h := p.storeSecret(), sha256.New()
	for _, name := range []string{"access", "secret", "ca"} {
		fmt.Fprintf(h, "%s\n", s[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
