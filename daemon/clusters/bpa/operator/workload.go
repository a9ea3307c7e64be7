package operator

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/daemon/clusters/contract/kubeconfig"
)

// Workload is the API of a cluster that was installed.
type Workload struct {
	client.Client
	Minor int // of its version: 36 of v1.36.3; 0 if that cannot be read
}

// workloadTimeout bounds one request: a control plane that restarts keeps no answer of another one waiting for long.
const workloadTimeout = 10 * time.Second

// ConnectWorkload connects to the first of a cluster's control planes that answers: the kubeconfig has a context for
// each.
func ConnectWorkload(text []byte) (Workload, error) {
	all, err := kubeconfig.ParseContexts(text)
	if err != nil {
		return Workload{}, err
	}

	var silent []error
	for _, config := range all {
		w, err := connectAt(config)
		if err == nil {
			return w, nil
		}
		silent = append(silent, err)
	}
	return Workload{}, errors.Join(silent...)
}

func connectAt(config *rest.Config) (Workload, error) {
	config.Dial, config.Timeout = kubeconfig.DialOthers, workloadTimeout
	asker, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return Workload{}, fmt.Errorf("make client of %s: %w", config.Host, err)
	}
	version, err := asker.ServerVersion()
	if err != nil {
		return Workload{}, fmt.Errorf("ask %s for its version: %w", config.Host, err)
	}

	c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return Workload{}, fmt.Errorf("make client of %s: %w", config.Host, err)
	}
	minor, _ := strconv.Atoi(strings.TrimRight(version.Minor, "+"))
	return Workload{Client: c, Minor: minor}, nil
}
