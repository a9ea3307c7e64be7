package workstation

import (
	"fmt"

	"k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// addContext puts the context of an appliance into a kubeconfig, in place of an earlier one, and makes it the current
// one. There is no secret in it: plugin, the firstlight command, is asked for the certificate and its key. The server is
// the forward of `firstlight proxy`; the API server's certificate names 127.0.0.1.
func addContext(into *clientcmdapi.Config, a Appliance, authority []byte, plugin string) {
	name := a.Context()
	into.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   "https://" + a.Address(),
		CertificateAuthorityData: authority,
	}
	into.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion:      v1.SchemeGroupVersion.String(),
		Command:         plugin,
		Args:            []string{"credential", a.Host},
		InstallHint:     "The firstlight command was moved; run firstlight login " + a.Host + " where it is now.",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	into.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	into.CurrentContext = name
}

// removeContext is the inverse of addContext. Which context was current before is not remembered.
func removeContext(from *clientcmdapi.Config, a Appliance) {
	name := a.Context()
	delete(from.Clusters, name)
	delete(from.AuthInfos, name)
	delete(from.Contexts, name)
	if from.CurrentContext == name {
		from.CurrentContext = ""
	}
}

// SaveContext puts the context of an appliance into its own kubeconfig, and into the user's, as kubectl finds it
// ($KUBECONFIG, else ~/.kube/config). It returns the name of the latter. plugin is the firstlight command.
func (s Store) SaveContext(a Appliance, access Access, plugin string) (string, error) {
	own := clientcmdapi.NewConfig()
	addContext(own, a, access.Authority, plugin)
	if err := clientcmd.WriteToFile(*own, s.Kubeconfig(a)); err != nil {
		return "", fmt.Errorf("write kubeconfig of %s: %w", a.Host, err)
	}

	return changeUserConfig(func(config *clientcmdapi.Config) { addContext(config, a, access.Authority, plugin) })
}

// RemoveContext takes an appliance out of the user's kubeconfig.
func RemoveContext(a Appliance) error {
	_, err := changeUserConfig(func(config *clientcmdapi.Config) { removeContext(config, a) })
	return err
}

func changeUserConfig(change func(*clientcmdapi.Config)) (string, error) {
	options := clientcmd.NewDefaultPathOptions()
	file := options.GetDefaultFilename()
	config, err := options.GetStartingConfig()
	if err != nil {
		return "", fmt.Errorf("read kubeconfig %s: %w", file, err)
	}

	change(config)
	if err := clientcmd.ModifyConfig(options, *config, false); err != nil {
		return "", fmt.Errorf("write kubeconfig %s: %w", file, err)
	}

	return file, nil
}
