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

// Machines are the machines of Cluster API whose text isStale, as they were told of the current one of what, such as
// "authority", and not of the next; each with what to do: those in service, and those that are to be installed. Nobody
// logs in to them. setup is the Secret that they are told by; it may not be there.
func Machines(
	ctx context.Context, c client.Reader, setup client.ObjectKey, what string, isStale func(text []byte) bool,
) ([]string, error) {
	var told corev1.SecretList
	if err := c.List(ctx, &told, client.MatchingFields{"type": bootstrapType}); err != nil {
		return nil, fmt.Errorf("read what machines of Cluster API were told: %w", err)
	}

	var all []string
	for _, s := range told.Items {
		if isAnyStale(s, isStale) {
			all = append(all, fmt.Sprintf("%s/%s: nobody logs in to a machine of Cluster API, and it was told to trust the "+
				"current %s alone; replace the machine (clusterctl alpha rollout restart)", s.Namespace, s.Name, what))
		}
	}

	var own corev1.Secret
	switch err := c.Get(ctx, setup, &own); {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("read what machines of Cluster API are told: %w", err)
	case err == nil && isAnyStale(own, isStale):
		all = append(all, fmt.Sprintf("the Secret %s, which tells machines of Cluster API what to trust", setup))
	}
	slices.Sort(all)
	return all, nil
}

func isAnyStale(s corev1.Secret, isStale func(text []byte) bool) bool {
	for _, text := range s.Data {
		if isStale(text) {
			return true
		}
	}
	return false
}

// HasCertificate reports whether a certificate, PEM, is in a text, however its lines are indented.
func HasCertificate(text, certificate []byte) bool {
	return bytes.Contains(dense(text), dense(certificate))
}

func dense(text []byte) []byte { return bytes.Join(bytes.Fields(text), nil) }
