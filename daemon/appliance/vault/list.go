package vault

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// listTimeout is how long the API server may take to name its Secrets.
const listTimeout = 15 * time.Second

// Listing is every secret of an appliance, without a value.
type Listing struct {
	Secrets  []Held   `json:"secrets"`
	Unlisted []string `json:"unlisted,omitempty"` // Secrets of the appliance's namespaces that are on no list
	Error    string   `json:"error,omitempty"`    // why Secrets of the API are missing
}

// List lists the secrets that an appliance has, below root and in the API that connect leads to. No file is opened, and
// the API is asked for names alone. Without the API the files are listed, and Error says why.
func List(ctx context.Context, root string, connect func() (*rest.Config, error)) Listing {
	var l Listing
	objects, err := listObjects(ctx, connect)
	if err != nil {
		l.Error = "Secrets of the API are not listed: " + err.Error()
	}

	l.Secrets = Hold(root, objects)
	own := map[string]bool{}
	for _, namespace := range Namespaces() {
		own[namespace] = true
	}
	for _, o := range objects {
		if _, listed := OfObject(o.Namespace + "/" + o.Name); own[o.Namespace] && !listed {
			l.Unlisted = append(l.Unlisted, o.Namespace+"/"+o.Name)
		}
	}
	return l
}

// listObjects asks the API for the names of all Secrets; what is in them does not leave it.
func listObjects(ctx context.Context, connect func() (*rest.Config, error)) ([]Object, error) {
	config, err := connect()
	if err != nil {
		return nil, err
	}

	config = rest.CopyConfig(config)
	config.Timeout = listTimeout
	c, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}

	found, err := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	var all []Object
	for _, o := range found.Items {
		all = append(all, Object{Namespace: o.Namespace, Name: o.Name, Created: o.CreationTimestamp.Time})
	}
	return all, nil
}

// FormatAge is how old a secret is, in its largest unit.
func FormatAge(age time.Duration) string {
	switch {
	case age < time.Hour:
		return fmt.Sprintf("%d min", int(age.Minutes()))
	case age < 48*time.Hour:
		return fmt.Sprintf("%d h", int(age.Hours()))
	}
	return fmt.Sprintf("%d d", int(age.Hours()/24))
}
