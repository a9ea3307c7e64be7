package s3api

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/api/access"
)

// Credential is one key.
type Credential struct {
	Secret string
	Owner  string      // the namespace that it was minted in
	User   access.User // whose rights it has
}

// String keeps the secret out of logs.
func (c Credential) String() string { return c.User.Name + ":[redacted]" }

// Keys knows the keys that are good now.
type Keys interface {
	Find(ctx context.Context, accessKey string) (c Credential, known bool, err error)
}

// credential is what the API server says of a token of the same account (serviceaccount.UserInfo in Kubernetes).
func credential(m artifact.MintedKey) Credential {
	return Credential{Secret: m.SecretKey, Owner: m.Namespace, User: access.User{
		Name:   "system:serviceaccount:" + m.Namespace + ":" + m.Account,
		UID:    m.UID,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + m.Namespace, "system:authenticated"},
	}}
}

// KeysTTL is how long keys are believed that were read: one that is revoked is good for no longer.
const KeysTTL = 5 * time.Second

// SecretKeys reads keys from one Secret.
type SecretKeys struct {
	secrets corev1.SecretInterface
	name    string

	mu   sync.Mutex
	read time.Time
	keys map[string]Credential
}

// NewSecretKeys returns the keys of a Secret; no request is made.
func NewSecretKeys(c *rest.Config, namespace, name string) (*SecretKeys, error) {
	api, err := corev1.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("make client of keys: %w", err)
	}
	return &SecretKeys{secrets: api.Secrets(namespace), name: name}, nil
}

// Find implements Keys. The API server is asked at most once in KeysTTL, and not by one request while another asks.
func (k *SecretKeys) Find(ctx context.Context, accessKey string) (Credential, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.read) > KeysTTL {
		keys, err := k.load(ctx)
		if err != nil {
			return Credential{}, false, err
		}
		k.keys, k.read = keys, time.Now()
	}

	c, known := k.keys[accessKey]
	return c, known, nil
}

func (k *SecretKeys) load(ctx context.Context) (map[string]Credential, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	secret, err := k.secrets.Get(ctx, k.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil // none is minted
	}
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}

	keys := map[string]Credential{}
	for id, text := range secret.Data {
		var m artifact.MintedKey
		if err := json.Unmarshal(text, &m); err != nil || m.SecretKey == "" {
			continue // the daemon wrote none of that
		}
		keys[id] = credential(m)
	}
	return keys, nil
}
