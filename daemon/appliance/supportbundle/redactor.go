package supportbundle

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// NewRedactor returns one that knows what is secret in the appliance's files, below root ("" on the appliance), and in
// the Secrets of its Kubernetes, which connect leads to. Without its answer there is none, since nothing could be
// hidden.
func NewRedactor(
	ctx context.Context, root string, connect func() (*rest.Config, error),
) (*Redactor, error) {
	config, err := connect()
	if err != nil {
		return nil, fmt.Errorf("learn secrets: %w", err)
	}
	config = rest.CopyConfig(config)
	config.Timeout = 15 * time.Second
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("learn secrets: %w", err)
	}
	secrets, err := api.CoreV1().Secrets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("learn secrets: %w", err)
	}

	c := &Collector{Root: root}
	c.learnSecrets()
	for _, secret := range secrets.Items {
		for key, value := range secret.Data {
			c.hide.AddNamed(key, string(value))
		}
	}
	return &c.hide, nil
}
