// Package removal tells a pod of an add-on's DaemonSet that ends whether the add-on is being removed. After a mere restart
// of the pod, what it keeps on the node stays.
package removal

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsv1client "k8s.io/client-go/kubernetes/typed/apps/v1"
)

// How often it is asked, and how long an answer may take: all of it within a grace period of 30 seconds.
const (
	tries    = 5
	askEvery = time.Second
	askFor   = 3 * time.Second
)

// IsRemoved reports whether a DaemonSet is gone, or waits for its pods to end. Its rights may go at the same time as it:
// an account that may not ask, each time, was removed as well. A server that does not answer decides nothing, and is the
// error.
func IsRemoved(ctx context.Context, sets appsv1client.DaemonSetInterface, name string) (bool, error) {
	refused := 0
	for try := 1; ; try++ {
		err := ask(ctx, sets, name)
		switch {
		case err == nil:
			return false, nil
		case apierrors.IsNotFound(err), apierrors.IsGone(err):
			return true, nil
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			refused++
		}
		if try == tries && refused == tries {
			return true, nil
		}
		if try == tries {
			return false, err
		}

		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(askEvery):
		}
	}
}

func ask(ctx context.Context, sets appsv1client.DaemonSetInterface, name string) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	set, err := sets.Get(ctx, name, metav1.GetOptions{})
	if err == nil && set.DeletionTimestamp != nil {
		return apierrors.NewGone("it is being deleted")
	}
	return err
}
