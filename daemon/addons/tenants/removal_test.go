package tenants

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/daemon/addons/tenants/v1alpha1"
)

// A namespace that cannot be deleted yet keeps its Tenant, which says so.
func TestATenantWaitsForItsNamespaces(t *testing.T) {
	c := newCluster(t, makeTenant(t, "alpha", 1, `{namespaces: [dev], reclaim: Delete}`))
	c.reconciled("alpha")
	n := c.namespace("dev")
	n.Finalizers = []string{"example.org/slow"}
	require.NoError(t, c.Update(t.Context(), n))

	c.deleteTenant("alpha")
	c.reconciled("alpha", "alpha")
	assert.Equal(t, v1alpha1.ReasonReleasing, c.condition("alpha").Reason)
	n = c.namespace("dev")
	n.Finalizers = nil
	require.NoError(t, c.Update(t.Context(), n))
	c.reconciled("alpha")
	checkGone(t, c)
}

// The add-on is removed: no namespace goes, no Tenant waits, and the same Tenants have them again afterwards.
func TestRemovalLeavesNamespaces(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for n := 0; ; n++ {
		c := newCluster(t,
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: Deployment.Namespace, Name: Deployment.Name}},
			makeTenant(t, "alpha", 1, full+`, reclaim: Delete}`), makeTenant(t, "beta", 2, `{namespaces: [test]}`),
		)
		c.reconciled("alpha", "beta")
		require.NoError(t, c.Delete(t.Context(), c.tenant("beta")))
		c.left = n
		err := remove(t.Context(), c, log)
		c.left = -1
		require.NoError(t, remove(t.Context(), c, log))

		for _, name := range []string{"dev", "prod", "test"} {
			checkRetained(t, c, name)
		}
		assert.Empty(t, c.tenant("alpha").Finalizers)
		require.NoError(t, c.Delete(t.Context(), c.tenant("alpha")))
		checkGone(t, c)

		require.NoError(t, c.Create(t.Context(), makeTenant(t, "alpha", 0, full+`}`)))
		c.reconciled("alpha")
		assert.Equal(t, fullObjects("dev"), c.own("dev"))
		if err == nil {
			require.NotZero(t, n)
			return
		}
		require.ErrorIs(t, err, errKilled)
	}
}

func TestTheControllerIsAwaited(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: Deployment.Namespace, Name: "p", Labels: map[string]string{"k8s-app": Deployment.Name},
	}}
	c := newCluster(t, pod, makeTenant(t, "alpha", 1, `{namespaces: [dev]}`))
	c.reconciled("alpha")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, remove(ctx, c, slog.New(slog.DiscardHandler)), context.DeadlineExceeded)
	assert.Equal(t, "alpha", c.namespace("dev").Labels[v1alpha1.LabelTenant], "it was released under a controller that runs")
}
