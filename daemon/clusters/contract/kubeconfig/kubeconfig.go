// Package kubeconfig reads kubeconfigs that others wrote: the owner of a cluster has its nodes and writes Secrets, and
// kubeconfigs come from both. client-go and kubectl run the programs and read the files that one names, with the rights
// of whoever uses it; here only what is in it counts.
package kubeconfig

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Parse is what logs in to the cluster of the current context. One that names a program, a file or a proxy is an error,
// whichever context does.
func Parse(text []byte) (*rest.Config, error) {
	file, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if _, _, err := Current(file); err != nil {
		return nil, err
	}
	if err := checkSelfContained(file); err != nil {
		return nil, err
	}
	return newConfig(file, file.CurrentContext)
}

// ParseContexts is what Parse returns, and after it the same for every other context, by name: those of the other nodes
// of a control plane.
func ParseContexts(text []byte) ([]*rest.Config, error) {
	first, err := Parse(text)
	if err != nil {
		return nil, err
	}
	file, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}

	all := []*rest.Config{first}
	for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
		if name == file.CurrentContext {
			continue
		}
		c, err := newConfig(file, name)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// newConfig is what logs in by one context of a self-contained file.
func newConfig(file *clientcmdapi.Config, context string) (*rest.Config, error) {
	c, err := clientcmd.NewNonInteractiveClientConfig(*file, context, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	if u, err := url.Parse(c.Host); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("its server %q is no address that begins with https://", c.Host)
	}

	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return direct{next} })
	return c, nil
}

// direct follows no answer to another place: whoever has the cluster would have the appliance ask any machine of its
// networks, also in the clear.
type direct struct{ next http.RoundTripper }

func (t direct) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil || response.StatusCode/100 != 3 {
		return response, err
	}
	_ = response.Body.Close()
	return nil, errors.New("it leads to another address, and no cluster is asked there")
}

// Current is the cluster and the user of the current context.
func Current(file *clientcmdapi.Config) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	current := file.Contexts[file.CurrentContext]
	if current == nil || file.Clusters[current.Cluster] == nil || file.AuthInfos[current.AuthInfo] == nil {
		return nil, nil, errors.New("it has no current context with a cluster and a user")
	}
	return file.Clusters[current.Cluster], file.AuthInfos[current.AuthInfo], nil
}

// Check refuses a kubeconfig that is not to be handed to anyone, because it names a program, a file or a proxy. What is
// no kubeconfig at all names none.
func Check(text []byte) error {
	file, err := clientcmd.Load(text)
	if err != nil {
		return nil
	}
	return checkSelfContained(file)
}

func checkSelfContained(file *clientcmdapi.Config) error {
	for _, name := range slices.Sorted(maps.Keys(file.Clusters)) {
		switch c := file.Clusters[name]; {
		case c == nil:
		case c.CertificateAuthority != "":
			return refuse("a file (certificate-authority)")
		case c.ProxyURL != "":
			return refuse("a proxy (proxy-url)")
		}
	}

	for _, name := range slices.Sorted(maps.Keys(file.AuthInfos)) {
		switch u := file.AuthInfos[name]; {
		case u == nil:
		case u.Exec != nil:
			return refuse("a program (exec)")
		case u.AuthProvider != nil:
			return refuse("a program (auth-provider)")
		case u.ClientCertificate != "" || u.ClientKey != "" || u.TokenFile != "":
			return refuse("a file (client-certificate, client-key or tokenFile)")
		}
	}

	return nil
}

func refuse(what string) error {
	return fmt.Errorf("it names %s; certificates, keys and tokens must be in it", what)
}
