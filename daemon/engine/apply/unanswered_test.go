package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestUnanswered(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewTimeoutError("slow", 1), true},
		{apierrors.NewServerTimeout(pods, "get", 1), true},
		{apierrors.NewTooManyRequests("later", 1), true},
		{apierrors.NewServiceUnavailable("starting"), true},
		{apierrors.NewInternalError(errors.New("etcd")), true},
		{fmt.Errorf("look: %w", context.DeadlineExceeded), true},
		{apierrors.NewNotFound(pods, "a"), false},
		{apierrors.NewForbidden(pods, "a", errors.New("no")), false},
		{apierrors.NewConflict(pods, "a", errors.New("changed")), false},
		{&meta.NoKindMatchError{}, false},
		{errors.New("ConfigMap a is not as wanted"), false},
		{context.Canceled, false},
		{nil, false},
	} {
		assert.Equal(t, c.want, IsUnanswered(c.err), "%v", c.err)
	}
}

// What a real client says of servers that are gone, silent or overloaded.
func TestUnansweredByRealServers(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer silent.Close()
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) }))
	defer busy.Close()
	gone := httptest.NewServer(nil)
	gone.Close()

	set, err := New("test", configMap("a", "1"))
	require.NoError(t, err)
	for name, server := range map[string]string{"silent": silent.URL, "busy": busy.URL, "gone": gone.URL} {
		t.Run(name, func(t *testing.T) {
			c, err := client.New(&rest.Config{Host: server, Timeout: 200 * time.Millisecond}, client.Options{})
			if err == nil {
				err = set.CheckCurrent(t.Context(), c)
			}
			require.Error(t, err)
			assert.True(t, IsUnanswered(err), "%v", err)

			err = c.Get(t.Context(), client.ObjectKey{Name: "a"}, &corev1.ConfigMap{})
			assert.True(t, IsUnanswered(err), "%v", err)
		})
	}
}
