package sandbox

import (
	"context"
	"fmt"
	"strings"

	"firstlight.dev/firstlight/assets/freeport"
)

// RunControllers runs controllers of Kubernetes' own beside the API, by the names that kube-controller-manager has for
// them, such as garbage-collector-controller. They end with the API.
func (a *API) RunControllers(ctx context.Context, names ...string) error {
	kubernetes, err := BuildProgram(ctx, "kubernetes")
	if err != nil {
		return err
	}

	port, err := freeport.FindTCP()
	if err != nil {
		return err
	}

	_, err = a.start("controllers", kubernetes, "kube-controller-manager",
		"--kubeconfig", a.Kubeconfig, "--controllers", strings.Join(names, ","), "--leader-elect=false",
		"--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(port), "--cert-dir", a.dir)
	return err
}
