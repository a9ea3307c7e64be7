package main

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"firstlight.dev/firstlight/assets/guest"
	"firstlight.dev/firstlight/daemon/appliance/kube"
)

// isGuest reports whether this program runs in a pod of an appliance on someone else's Kubernetes.
func isGuest() bool { return os.Getenv(guest.Variable) != "" }

// defaultKubeconfig is the file by which commands of operators reach the appliance's API. A guest has none: "".
func defaultKubeconfig() string {
	if isGuest() {
		return ""
	}
	return kube.AdminConfig
}

// connectDefault is how commands of operators reach the appliance's API, on an appliance and in the pod of a guest.
func connectDefault() (*rest.Config, error) { return restConfig(defaultKubeconfig()) }

// restConfig is how an API is reached by a kubeconfig, or "" by the account of the pod that this runs in.
func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find API server: %w; give --kubeconfig outside of a cluster", err)
		}
		return c, nil
	}

	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	return c, nil
}
