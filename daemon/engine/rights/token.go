package rights

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// CheckTokens is nil if no Secret has a token that a former key of service accounts, in PEM, signed; "" signed none.
// Kubernetes renews the tokens of pods; one in a Secret stays as it is, and whoever uses it would be refused.
func CheckTokens(ctx context.Context, api kubernetes.Interface, former string) error {
	list, err := api.CoreV1().Secrets("").List(
		ctx, metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)},
	)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("list Secrets with tokens: %w", err)
	}

	var names []string
	for _, s := range list.Items {
		if IsSignedBy(s.Data[corev1.ServiceAccountTokenKey], former) {
			names = append(names, s.Namespace+"/"+s.Name)
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("the former key of service accounts is trusted for the tokens in %d Secrets: %s; have each renewed "+
			"(kubectl patch secret NAME --type=json -p '[{\"op\":\"remove\",\"path\":\"/data/token\"}]') or delete it",
			len(names), strings.Join(names, ", "))
	}
	return nil
}

// IsSignedBy reports whether a token of a service account names a key, in PEM, as the one that signed it: the API server
// and the controller manager name the SHA-256 of its DER.
func IsSignedBy(token []byte, public string) bool {
	block, _ := pem.Decode([]byte(public))
	head, _, _ := strings.Cut(string(token), ".")
	text, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil || block == nil {
		return false
	}

	var header struct {
		KeyID string `json:"kid"`
	}
	sum := sha256.Sum256(block.Bytes)
	return json.Unmarshal(text, &header) == nil && header.KeyID == base64.RawURLEncoding.EncodeToString(sum[:])
}
