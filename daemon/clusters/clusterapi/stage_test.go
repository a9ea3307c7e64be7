package clusterapi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"firstlight.dev/firstlight/daemon/appliance/ca"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// shelf is an API server as far as this stage asks one: what was applied is there with its annotation.
type shelf struct {
	digests map[string]string
	writes  int
	limit   int  // after so many writes the power is gone; 0: never
	ready   bool // the pods are
}

var errPower = errors.New("no power")

func keyOf(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

func (s *shelf) client() (client.Client, error) {
	return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				return err
			}
			if s.limit > 0 && s.writes == s.limit {
				return errPower
			}
			s.writes++
			u := unstructured.Unstructured{Object: content}
			s.digests[keyOf(u.GetKind(), u.GetNamespace(), u.GetName())] = u.GetAnnotations()[apply.Annotation]
			return nil
		},
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			if d, ok := o.(*appsv1.Deployment); ok {
				if s.ready {
					d.Status = appsv1.DeploymentStatus{UpdatedReplicas: 1, AvailableReplicas: 1}
				}
				return nil
			}
			digest, ok := s.digests[keyOf(o.(*metav1.PartialObjectMetadata).Kind, key.Namespace, key.Name)]
			if !ok {
				return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			o.SetAnnotations(map[string]string{apply.Annotation: digest})
			return nil
		},
	}).Build(), nil
}

func newStage(t *testing.T, s *shelf) *stage {
	authority, err := ca.Open(t.TempDir(), time.Now)
	require.NoError(t, err)
	return &stage{
		repository: writeRepository(t, t.TempDir()),
		authority:  func() (*ca.Authority, error) { return authority, nil },
		api:        s.client,
		cache:      &apply.Cache{},
	}
}

func TestTheStageGoesOnWhereItWasInterrupted(t *testing.T) {
	s := &shelf{digests: map[string]string{}}
	made := newStage(t, s)
	ctx, report := t.Context(), func(string) {}
	assert.EqualError(t, made.check(ctx), "CustomResourceDefinition providers.clusterctl.cluster.x-k8s.io does not exist")

	outline, err := made.outline(nil)
	require.NoError(t, err)
	all := len(outline.Objects)
	for s.limit = 1; s.limit < all; s.limit += 7 {
		require.ErrorIs(t, made.apply(ctx, report), errPower)
		require.Error(t, made.check(ctx))
	}
	s.limit = 0
	require.NoError(t, made.apply(ctx, report))
	assert.Equal(t, all, s.writes, "an object that is as wanted is left alone")

	err = made.check(ctx)
	assert.True(t, bringup.IsWait(err))
	assert.ErrorContains(t, err, "the pod of capi-controller-manager to be ready")
	s.ready = true
	assert.NoError(t, made.check(ctx))
}

// The definitions have megabytes: what is compared again and again is their digests.
func TestTheOutlineHoldsNoObject(t *testing.T) {
	made := newStage(t, &shelf{digests: map[string]string{}})
	outline, err := made.outline(nil)
	require.NoError(t, err)
	for _, o := range outline.Objects {
		assert.Len(t, o.Object, 3, "%s %s: apiVersion, kind and metadata", o.GetKind(), o.GetName())
		assert.NotEmpty(t, o.GetAnnotations()[apply.Annotation])
	}
}

func TestANewAuthorityIsAppliedEverywhere(t *testing.T) {
	s := &shelf{digests: map[string]string{}, ready: true}
	made := newStage(t, s)
	require.NoError(t, made.apply(t.Context(), func(string) {}))
	require.NoError(t, made.check(t.Context()))
	other, err := ca.Open(t.TempDir(), time.Now)
	require.NoError(t, err)
	made.authority = func() (*ca.Authority, error) { return other, nil }
	require.Error(t, made.check(t.Context()))
	before := s.writes
	require.NoError(t, made.apply(t.Context(), func(string) {}))
	assert.Equal(t, 17+6+3, s.writes-before, "conversions, configurations of webhooks, certificates")
	require.NoError(t, made.check(t.Context()))
}

func TestAStickWithoutClusterAPISaysSo(t *testing.T) {
	made := newStage(t, &shelf{digests: map[string]string{}})
	made.repository = t.TempDir()
	assert.ErrorContains(t, made.check(t.Context()), "clusterctl-api.yaml: no such file or directory")
}
