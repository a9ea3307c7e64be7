package artifact

// KeySecretType is the type of a Secret in which someone asks for a key to uploads by S3. As with Kubernetes' tokens,
// the annotation kubernetes.io/service-account.name says whose rights it is to have; the daemon writes the rest.
const KeySecretType = Group + "/s3-key"

// Names in such a Secret.
const (
	KeyAccess    = "accessKey"
	KeySecret    = "secretKey"
	KeyEndpoint  = "endpoint" // https://HOST:PORT
	KeyAuthority = "ca.crt"   // of the endpoint's certificate, PEM
)

// KeysSecret is the Secret, next to the agent's pod, in which the daemon gathers all keys: the agent may read no other.
const KeysSecret = "artifacts-s3-keys"

// MintedKey is one of them, under its access key.
type MintedKey struct {
	SecretKey string `json:"secretKey"`
	Namespace string `json:"namespace"` // the owner, as artifacts have it
	Account   string `json:"account"`   // service account of the namespace, whose rights the key has
	UID       string `json:"uid"`       // of that account
}

// String keeps the secret out of logs.
func (k MintedKey) String() string { return k.Namespace + "/" + k.Account + ":[redacted]" }
