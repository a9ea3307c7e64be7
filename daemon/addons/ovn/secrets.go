package ovn

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// SystemNamespace has the add-on's objects.
	SystemNamespace = "kube-system"
	// CentralName is that of the Deployment of OVN's central part, and of its Service.
	CentralName = "ovn-central"
	// CentralHost is the Service's name.
	CentralHost = CentralName + "." + SystemNamespace + ".svc"

	// Secrets of one side each. Who has a database's client may write all of that database.
	northboundServer, NorthboundClient = "ovn-northbound-server", "ovn-northbound-client"
	southboundServer, SouthboundClient = "ovn-southbound-server", "ovn-southbound-client"
)

// EnsureSecrets makes the certificates of both databases unless they are there, and writes those of the servers to folders
// nb and sb of dir. The Secrets go with the Deployment.
func EnsureSecrets(ctx context.Context, client kubernetes.Interface, dir string) error {
	for _, d := range []struct{ database, server, client, folder string }{
		{Northbound, northboundServer, NorthboundClient, dir + "/nb"},
		{Southbound, southboundServer, SouthboundClient, dir + "/sb"},
	} {
		p, err := ensurePair(ctx, client, d.database, d.server, d.client)
		if err != nil {
			return err
		}
		if err := Save(d.folder, p.Server); err != nil {
			return err
		}
	}
	return nil
}

func ensurePair(ctx context.Context, client kubernetes.Interface, database, server, clients string) (Pair, error) {
	have := Pair{}
	for name, side := range map[string]*map[string][]byte{server: &have.Server, clients: &have.Client} {
		secret, err := client.CoreV1().Secrets(SystemNamespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return have, fmt.Errorf("read Secret %s: %w", name, err)
		}
		if err == nil {
			*side = secret.Data
		}
	}
	if IsPair(have) {
		return have, nil
	}

	deployment, err := client.AppsV1().Deployments(SystemNamespace).Get(ctx, CentralName, metav1.GetOptions{})
	if err != nil {
		return have, fmt.Errorf("read Deployment %s: %w", CentralName, err)
	}
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: CentralName, UID: deployment.UID}
	made, err := NewPair(database, time.Now())
	if err != nil {
		return have, err
	}
	// The client's first: while the server's is missing, both are made again.
	for _, s := range []struct {
		name string
		data map[string][]byte
	}{{clients, made.Client}, {server, made.Server}} {
		if err := replaceSecret(ctx, client, s.name, s.data, owner); err != nil {
			return have, err
		}
	}
	return made, nil
}

func replaceSecret(
	ctx context.Context, client kubernetes.Interface, name string, data map[string][]byte, owner metav1.OwnerReference,
) error {
	secrets := client.CoreV1().Secrets(SystemNamespace)
	if err := secrets.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("replace Secret %s: %w", name, err)
	}
	_, err := secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{owner}},
		Data:       data,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make Secret %s: %w", name, err)
	}
	return nil
}

// FetchCertificates waits for a Secret and writes its files.
func FetchCertificates(ctx context.Context, client kubernetes.Interface, name, dir string) error {
	for {
		secret, err := client.CoreV1().Secrets(SystemNamespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return Save(dir, secret.Data)
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("read Secret %s: %w", name, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}
