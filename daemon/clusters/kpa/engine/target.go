package engine

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
	"firstlight.dev/firstlight/daemon/clusters/kpa/plan"
	"firstlight.dev/firstlight/daemon/clusters/kpa/v1alpha1"
)

// Bounds of one call: a cluster that does not answer keeps a worker no longer than that.
const (
	requestTimeout = 15 * time.Second
	stageTimeout   = 15 * time.Second // of kinds and namespaces, until they are served
	pollInterval   = 250 * time.Millisecond
)

// Target is an API on which Components are installed.
type Target struct {
	Config *rest.Config
	http   *http.Client
	client client.Client
	mapper meta.RESTMapper
}

// ParseKubeconfig reads what logs in to a cluster. Whoever may write a Secret has no say over the operator's files and
// programs: a kubeconfig that names any is refused.
func ParseKubeconfig(text []byte) (*rest.Config, error) {
	c, err := kubeconfig.Parse(text)
	if err != nil {
		return nil, refuseKubeconfig(err.Error())
	}
	return c, nil
}

func refuseKubeconfig(why string) error {
	return newFault(v1alpha1.PhaseWaiting, plan.ReasonKubeconfigRefused, "its kubeconfig is refused: %s", why)
}

// Connect makes a target. It asks nothing yet.
func Connect(config *rest.Config) (*Target, error) {
	c := rest.CopyConfig(config)
	c.QPS, c.Burst, c.Timeout = 50, 100, requestTimeout
	c.UserAgent = FieldManager
	c.WarningHandler = rest.NoWarnings{}
	caller, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, refuseKubeconfig(err.Error())
	}

	mapper, err := apiutil.NewDynamicRESTMapper(c, caller)
	if err != nil {
		return nil, err
	}
	api, err := client.New(c, client.Options{HTTPClient: caller, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}

	return &Target{Config: c, http: caller, client: api, mapper: mapper}, nil
}

// AskVersion asks the target for its version.
func (t *Target) AskVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c := rest.CopyConfig(t.Config)
	c.APIPath, c.GroupVersion = "/", &v1alpha1.GroupVersion
	c.NegotiatedSerializer = negotiator
	r, err := rest.UnversionedRESTClientForConfigAndClient(c, t.http)
	if err != nil {
		return err
	}

	return r.Get().AbsPath("/version").Do(ctx).Error()
}
