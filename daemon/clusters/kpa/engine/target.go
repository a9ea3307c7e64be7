package engine

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

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
	client client.Client
	mapper meta.RESTMapper
}

// ParseKubeconfig reads what logs in to a cluster. Whoever may write a Secret has no say over the operator's files and
// programs: a kubeconfig that names any is refused.
func ParseKubeconfig(text []byte) (*rest.Config, error) {
	file, err := clientcmd.Load(text)
	if err != nil {
		return nil, newFault(v1alpha1.PhaseWaiting, plan.ReasonKubeconfigRefused, "its kubeconfig cannot be read: %v", err)
	}

	context, ok := file.Contexts[file.CurrentContext]
	if !ok {
		return nil, refuseKubeconfig("it has no current-context")
	}
	if why := describeForeign(file.Clusters[context.Cluster], file.AuthInfos[context.AuthInfo]); why != "" {
		return nil, refuseKubeconfig(why)
	}

	c, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, refuseKubeconfig(err.Error())
	}

	return c, nil
}

func refuseKubeconfig(why string) error {
	return newFault(
		v1alpha1.PhaseWaiting, plan.ReasonKubeconfigRefused,
		"its kubeconfig is refused: %s; certificates, keys and tokens must be in it", why,
	)
}

// describeForeign names the first thing of a kubeconfig that is not in it; "" if all is.
func describeForeign(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) string {
	switch {
	case cluster == nil || user == nil:
		return "its current context names a cluster or user that it does not have"
	case user.Exec != nil:
		return "it names a program (exec)"
	case user.AuthProvider != nil:
		return "it names a program (auth-provider)"
	case user.ClientCertificate != "" || user.ClientKey != "" || user.TokenFile != "":
		return "it names a file (client-certificate, client-key or tokenFile)"
	case cluster.CertificateAuthority != "":
		return "it names a file (certificate-authority)"
	}
	return ""
}

// Connect makes a target. It asks nothing yet.
func Connect(config *rest.Config) (*Target, error) {
	c := rest.CopyConfig(config)
	c.QPS, c.Burst, c.Timeout = 50, 100, requestTimeout
	c.UserAgent = FieldManager
	c.WarningHandler = rest.NoWarnings{}
	http, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, refuseKubeconfig(err.Error())
	}

	mapper, err := apiutil.NewDynamicRESTMapper(c, http)
	if err != nil {
		return nil, err
	}
	api, err := client.New(c, client.Options{HTTPClient: http, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}

	return &Target{c, api, mapper}, nil
}

// AskVersion asks the target for its version.
func (t *Target) AskVersion(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	http, err := rest.HTTPClientFor(t.Config)
	if err != nil {
		return err
	}
	c := rest.CopyConfig(t.Config)
	c.APIPath, c.GroupVersion = "/", &v1alpha1.GroupVersion
	c.NegotiatedSerializer = negotiator
	r, err := rest.UnversionedRESTClientForConfigAndClient(c, http)
	if err != nil {
		return err
	}

	return r.Get().AbsPath("/version").Do(ctx).Error()
}
