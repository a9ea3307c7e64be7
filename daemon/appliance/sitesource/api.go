package sitesource

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// API is the appliance's.
type API struct {
	Config func() (*rest.Config, error) // of an administrator; an error while there is none
	Ready  func() bool                  // the kind Provisioning is there
}

// errNoAPI is of an API that is not up, or lacks the kinds of a source.
var errNoAPI = errors.New("the appliance's API is not ready for Provisionings")

// Apply has exactly these objects of a source in the API, with the rights of the source's account.
func (a API) Apply(ctx context.Context, source string, all []*unstructured.Unstructured) error {
	if !a.Ready() {
		return errNoAPI
	}
	config, err := a.Config()
	if err != nil {
		return err
	}
	admin, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("reach the API: %w", err)
	}
	set, err := newRights()
	if err != nil {
		return err
	}
	if err := set.StaleSubset(ctx, admin).Apply(ctx, admin); err != nil {
		return fmt.Errorf("give the source its rights: %w", err)
	}

	limited, err := client.New(impersonate(config), client.Options{})
	if err != nil {
		return fmt.Errorf("reach the API: %w", err)
	}
	return applyObjects(ctx, limited, source, all)
}
