package authority

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bootstrapType is of Secrets in which machines of Cluster API are told what they do at their first boot. Each is there
// as long as its machine.
const bootstrapType = "cluster.x-k8s.io/secret"

// Machines are the machines of Cluster API that were told to trust what is given, PEM, and not next, each with what to
// do: those in service, and those that are to be installed. Nobody logs in to them. setup is the Secret that they are
// told by; it may not be there.
func Machines(ctx context.Context, c client.Reader, setup client.ObjectKey, trusted, next []byte) ([]string, error) {
	var told corev1.SecretList
	if err := c.List(ctx, &told, client.MatchingFields{"type": bootstrapType}); err != nil {
		return nil, fmt.Errorf("read what machines of Cluster API were told: %w", err)
	}

	var all []string
	for _, s := range told.Items {
		if isStale(s, trusted, next) {
			all = append(all, fmt.Sprintf("%s/%s: nobody logs in to a machine of Cluster API, and it was told to trust the "+
				"current authority alone; replace the machine (clusterctl alpha rollout restart)", s.Namespace, s.Name))
		}
	}

	var own corev1.Secret
	switch err := c.Get(ctx, setup, &own); {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("read what machines of Cluster API are told: %w", err)
	case err == nil && isStale(own, trusted, next):
		all = append(all, fmt.Sprintf("the Secret %s, which tells machines of Cluster API what to trust", setup))
	}
	slices.Sort(all)
	return all, nil
}

// isStale reports whether a Secret names one certificate and not the other.
func isStale(s corev1.Secret, trusted, next []byte) bool {
	for _, text := range s.Data {
		if names(text, trusted) && !names(text, next) {
			return true
		}
	}
	return false
}

// names reports whether a certificate, PEM, is in a text, however its lines are indented.
func names(text, certificate []byte) bool {
	return bytes.Contains(dense(text), dense(certificate))
}

func dense(text []byte) []byte { return bytes.Join(bytes.Fields(text), nil) }
