package authority

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"firstlight.dev/firstlight/daemon/appliance/ca"
)

func TestMachines(t *testing.T) {
	current, err := ca.Open(t.TempDir(), time.Now)
	require.NoError(t, err)
	next, err := ca.Open(t.TempDir(), time.Now)
	require.NoError(t, err)
	both := string(current.PEM()) + string(next.PEM())
	isStale := func(text []byte) bool {
		return HasCertificate(text, current.PEM()) && !HasCertificate(text, next.PEM())
	}
	setup := client.ObjectKey{Namespace: "metal3", Name: "firstlight-node"}

	// As cloud-init is told: the lines of a file are indented.
	cloud := func(text string) string {
		return "write_files:\n- content: |\n      cat >ca.crt <<'END'\n      " + strings.ReplaceAll(text, "\n", "\n      ") + "END\n"
	}
	secret := func(namespace, name, kind, text string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Type:       corev1.SecretType(kind),
			Data:       map[string][]byte{"format": []byte("cloud-config"), "value": []byte(text)},
		}
	}
	for name, c := range map[string]struct {
		secret *corev1.Secret
		want   string // "": it is not waited for
	}{
		"a machine of before":        {secret("edge", "worker-1", bootstrapType, cloud(string(current.PEM()))), "edge/worker-1: nobody logs in"},
		"a machine of now":           {secret("edge", "worker-1", bootstrapType, cloud(both)), ""},
		"a machine of another kind":  {secret("edge", "worker-1", bootstrapType, "#cloud-config\n"), ""},
		"no machine":                 {secret("edge", "mine", "Opaque", string(current.PEM())), ""},
		"what tells them, of before": {secret(setup.Namespace, setup.Name, "Opaque", string(current.PEM())), "the Secret metal3/firstlight-node"},
		"what tells them, of now":    {secret(setup.Namespace, setup.Name, "Opaque", both), ""},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientBuilder().WithObjects(c.secret).WithIndex(&corev1.Secret{}, "type", func(o client.Object) []string {
				return []string{string(o.(*corev1.Secret).Type)}
			}).Build()
			got, err := Machines(t.Context(), api, setup, "authority", isStale)
			require.NoError(t, err)
			if c.want == "" {
				assert.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			assert.Contains(t, got[0], c.want)
		})
	}

	down := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("down")
		},
	}).Build()
	_, err = Machines(t.Context(), down, setup, "authority", isStale)
	assert.ErrorContains(t, err, "down", "nobody is waited for although nobody was asked")
}
