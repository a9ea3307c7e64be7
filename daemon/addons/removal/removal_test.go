package removal

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestARestartIsNoRemoval(t *testing.T) {
	resource := appsv1.Resource("daemonsets")
	forbidden, unauthorized := apierrors.NewForbidden(resource, "x", nil), apierrors.NewUnauthorized("")
	silent, ending := errors.New("connection refused"), errors.New("deleted")
	for name, c := range map[string]struct {
		answers []error
		removed bool
		unknown bool
	}{
		"it is there":             {[]error{nil}, false, false},
		"it is gone":              {[]error{apierrors.NewNotFound(resource, "x")}, true, false},
		"it waits for its pods":   {[]error{ending}, true, false},
		"its rights are gone":     {[]error{forbidden, unauthorized, unauthorized, unauthorized, unauthorized}, true, false},
		"rights come back":        {[]error{forbidden, nil}, false, false},
		"no answer":               {[]error{silent, silent, silent, silent, silent}, false, true},
		"one answer is no answer": {[]error{silent, forbidden, forbidden, forbidden, forbidden}, false, true},
		"it answers at last":      {[]error{silent, apierrors.NewServiceUnavailable(""), apierrors.NewNotFound(resource, "x")}, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			client := fake.NewClientset()
			client.PrependReactor("get", "daemonsets", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				set := &appsv1.DaemonSet{}
				if err := c.answers[asked-1]; err != nil && !errors.Is(err, ending) {
					return true, nil, err
				} else if err != nil {
					set.DeletionTimestamp = &metav1.Time{Time: time.Now()}
				}
				return true, set, nil
			})
			removed, err := IsRemoved(t.Context(), client.AppsV1().DaemonSets("kube-system"), "x")
			assert.Equal(t, c.removed, removed, name)
			assert.Equal(t, c.unknown, err != nil, name)
			assert.Len(t, c.answers, asked, name)
		})
	}
}
