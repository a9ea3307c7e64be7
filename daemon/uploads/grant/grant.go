// Package grant lets people upload: an owner's namespace, what may be done in it, and a token. By hand that is four
// objects and an option of kubectl for each (docs/artifacts.md, "By curl").
package grant

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/rights"
)

// name is that of the account, of its role and of their binding.
const name = "uploader"

// fieldManager owns what is made here.
const fieldManager = "firstlight-uploader"

// MinValidity is the shortest time for which the API server gives out a token.
const MinValidity = 10 * time.Minute

// Token makes what an owner needs to upload, and returns a token that is good for that long. It may be repeated: what is
// there stays, and earlier tokens stay valid. The system's own namespaces are no owners.
func Token(ctx context.Context, c client.Client, owner string, validity time.Duration) (string, error) {
	if problems := validation.IsDNS1123Label(owner); len(problems) > 0 {
		return "", fmt.Errorf("owner %q: %s", owner, problems[0])
	}
	if isSystem(owner) {
		return "", fmt.Errorf("owner %s is a namespace of the appliance itself; name another one", owner)
	}

	set, err := apply.New(fieldManager, objects(owner)...)
	if err != nil {
		return "", err
	}
	if err := set.Apply(ctx, c); err != nil {
		return "", fmt.Errorf("let %s upload: %w", owner, err)
	}

	account := rights.Account{Namespace: owner, Name: name}
	request := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(validity.Seconds()))},
	}
	if err := c.SubResource("token").Create(ctx, account.Object(), request); err != nil {
		return "", fmt.Errorf("make a token for %s: %w", owner, err)
	}
	return request.Status.Token, nil
}

// isSystem reports whether a namespace holds what the appliance itself runs on: a token in it would be more than one to
// upload with.
func isSystem(namespace string) bool {
	switch namespace {
	case "metal3", "bpa", "artifacts":
		return true
	}
	return strings.HasPrefix(namespace, "kube-") || strings.HasPrefix(namespace, "capi-")
}

// objects are an owner's namespace, an account in it, and its right to all collections there. A namespace that exists
// is applied without a label of its own, which changes nothing in it.
func objects(owner string) []client.Object {
	may := rbacv1.PolicyRule{
		APIGroups: []string{artifact.Group},
		Verbs:     []string{"create", "get", "list", "update", "patch", "delete"},
	}
	for _, c := range artifact.Collections() {
		may.Resources = append(may.Resources, string(c))
	}

	account := rights.Account{Namespace: owner, Name: name}
	return []client.Object{
		&corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: owner},
		},
		account.Object(),
		rights.NewRole(owner, name, []rbacv1.PolicyRule{may}),
		account.Bind(owner, "Role", name),
	}
}
