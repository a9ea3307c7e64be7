package apply

import (
	"context"
	"errors"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// IsUnanswered reports whether an error of a request to an API server says only that the request was
// not answered: no connection, no time, or a server that asks to be left alone for a while. It says
// nothing about the objects that were asked for.
func IsUnanswered(err error) bool {
	var transport *url.Error // of every request that brought no HTTP status
	var discovered *apiutil.ErrResourceDiscoveryFailed
	var group *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &transport), errors.As(err, &discovered), errors.As(err, &group):
		return true
	case errors.Is(err, context.DeadlineExceeded):
		return true
	}

	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
}
