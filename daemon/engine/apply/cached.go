package apply

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FromCache is an option of a Get or a List: the API server may answer from its own cache (resourceVersion "0", see
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions). Without it every Get is a request to
// etcd, and every List has etcd report its revision to all of the API server's watches first. The answer may be older
// than the last write, by milliseconds as a rule: it is for questions that are asked again.
type FromCache struct{}

// ApplyToGet is of client.GetOption.
func (FromCache) ApplyToGet(o *client.GetOptions) {
	if o.Raw == nil {
		o.Raw = &metav1.GetOptions{}
	}
	o.Raw.ResourceVersion = "0"
}

// ApplyToList is of client.ListOption.
func (FromCache) ApplyToList(o *client.ListOptions) {
	if o.Raw == nil {
		o.Raw = &metav1.ListOptions{}
	}
	o.Raw.ResourceVersion = "0"
}

// NewCachedReader returns a reader whose reads are answered FromCache.
func NewCachedReader(c client.Reader) client.Reader { return cachedReader{c} }

type cachedReader struct{ reader client.Reader }

func (c cachedReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return c.reader.Get(ctx, key, o, append(options, FromCache{})...)
}

func (c cachedReader) List(ctx context.Context, o client.ObjectList, options ...client.ListOption) error {
	return c.reader.List(ctx, o, append(options, FromCache{})...)
}
