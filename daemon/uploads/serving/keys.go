package serving

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/daemon/engine/apply"
)

// maxMinted keeps the Secret of all keys below etcd's limit.
const maxMinted = 4000

var (
	reAccess = regexp.MustCompile(`^FL[A-Z2-7]{18}$`)
	reSecret = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
)

// Minter mints keys to uploads by S3. Whoever may create Secrets in a namespace asks for one there, as for a token of a
// service account; whoever deletes the Secret, or the account, revokes it.
type Minter struct {
	API      client.Client
	Endpoint string
	CA       []byte
}

// Mint fills in what was asked for, and hands the agent the keys that are good now.
func (m Minter) Mint(ctx context.Context) error {
	var asked corev1.SecretList
	// It is asked every few seconds: an answer that is late by less does no harm.
	if err := m.API.List(ctx, &asked, client.MatchingFields{"type": artifact.KeySecretType}, apply.FromCache{}); err != nil {
		return fmt.Errorf("list keys that are asked for: %w", err)
	}

	// The oldest first: of two Secrets with one key, the second is a copy.
	slices.SortFunc(asked.Items, func(a, b corev1.Secret) int {
		return cmp.Or(
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name),
		)
	})
	good := map[string][]byte{}
	for i := range asked.Items {
		if err := m.mintOne(ctx, &asked.Items[i], good); err != nil {
			return err
		}
	}

	return m.save(ctx, good)
}

// mintOne has one Secret hold a key, or say why it does not.
func (m Minter) mintOne(ctx context.Context, s *corev1.Secret, good map[string][]byte) error {
	if s.DeletionTimestamp != nil {
		return nil
	}

	account, problem, err := m.account(ctx, s)
	if err != nil {
		return err
	}
	if problem == "" && len(good) >= maxMinted {
		problem = fmt.Sprintf("there are %d keys, which is the most", maxMinted)
	}

	before := s.DeepCopy()
	m.fill(s, problem, good)
	if !maps.EqualFunc(before.Data, s.Data, bytes.Equal) || !maps.Equal(before.Annotations, s.Annotations) {
		err := m.API.Update(ctx, s)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return nil // it is looked at again
		}
		if err != nil {
			return fmt.Errorf("write key into %s/%s: %w", s.Namespace, s.Name, err)
		}
	}

	if problem != "" {
		return nil
	}

	minted := artifact.MintedKey{
		SecretKey: string(s.Data[artifact.KeySecret]), Namespace: s.Namespace, Account: account.Name, UID: string(account.UID),
	}
	good[string(s.Data[artifact.KeyAccess])], err = json.Marshal(minted)
	return err
}

// account is the one whose rights are asked for.
func (m Minter) account(ctx context.Context, s *corev1.Secret) (a corev1.ServiceAccount, problem string, err error) {
	name := s.Annotations[corev1.ServiceAccountNameKey]
	if name == "" {
		return a, "the annotation " + corev1.ServiceAccountNameKey + " is missing: whose rights the key is to have", nil
	}

	err = m.API.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &a)
	if apierrors.IsNotFound(err) {
		return a, "there is no service account " + name + " in this namespace", nil
	}
	if err != nil {
		return a, "", fmt.Errorf("read service account %s/%s: %w", s.Namespace, name, err)
	}

	return a, "", nil
}

// fill decides what a Secret is to hold.
func (m Minter) fill(s *corev1.Secret, problem string, good map[string][]byte) {
	delete(s.Annotations, label.Problem)
	if problem != "" {
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[label.Problem] = problem
		s.Data = nil
		return
	}

	access := string(s.Data[artifact.KeyAccess])
	_, isCopy := good[access]
	if isCopy || !reAccess.MatchString(access) || !reSecret.Match(s.Data[artifact.KeySecret]) {
		access = "FL" + base32.StdEncoding.EncodeToString(random(12))[:18]
		s.Data = map[string][]byte{artifact.KeySecret: []byte(base64.RawURLEncoding.EncodeToString(random(32)))}
	}

	s.Data = map[string][]byte{
		artifact.KeyAccess:    []byte(access),
		artifact.KeySecret:    s.Data[artifact.KeySecret],
		artifact.KeyEndpoint:  []byte(m.Endpoint),
		artifact.KeyAuthority: m.CA,
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails, crypto/rand
	return b
}

// save writes the Secret that the agent reads, if it is another one now.
func (m Minter) save(ctx context.Context, good map[string][]byte) error {
	var have corev1.Secret
	err := m.API.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: artifact.KeysSecret}, &have)
	switch {
	case apierrors.IsNotFound(err):
		err = m.API.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: artifact.KeysSecret, Labels: map[string]string{managedBy: owner}},
			Data:       good,
		})
	case err == nil && !maps.EqualFunc(have.Data, good, bytes.Equal):
		have.Data = good
		err = m.API.Update(ctx, &have)
	}

	if err != nil {
		return fmt.Errorf("write keys for the agent: %w", err)
	}
	return nil
}
