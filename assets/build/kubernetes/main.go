// Command kubernetes is all of Kubernetes that the appliance and the clusters it installs need, linked
// once: the name it is called by, or its first argument, chooses the program. One file serves as the
// host's kubelet, kubeadm and kubectl and, on one shared layer, as the images of the control plane.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // request metrics of every client
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// program is one of the commands inside; run does not return before it has ended, and yields the exit code.
type program struct {
	name string
	run  func() int
}

// programs is the literal list of what this binary can be.
func programs() []program {
	component := func(newCommand func() *cobra.Command) func() int {
		return func() int { return cli.Run(newCommand()) }
	}
	return []program{
		{"kube-apiserver", component(apiserver.NewAPIServerCommand)},
		{"kube-controller-manager", afterAPI(component(controllermanager.NewControllerManagerCommand))},
		{"kube-scheduler", afterAPI(component(func() *cobra.Command { return scheduler.NewSchedulerCommand() }))},
		{"kube-proxy", component(proxy.NewProxyCommand)},
		{"kubelet", component(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) })},
		{"kubeadm", func() int { kubeadmerrors.HandleError(kubeadm.Run()); return 0 }},
		{"kubectl", func() int {
			if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
				kubectlutil.CheckErr(err) // prints the error the way users of kubectl know and exits
			}
			return 0
		}},
	}
}

func main() {
	list := programs()
	called := filepath.Base(os.Args[0])
	i := slices.IndexFunc(list, func(p program) bool { return p.name == called })
	if i < 0 && len(os.Args) > 1 {
		i = slices.IndexFunc(list, func(p program) bool { return p.name == os.Args[1] })
		os.Args = os.Args[1:]
	}
	if i < 0 {
		names := make([]string, len(list))
		for n, p := range list {
			names[n] = p.name
		}
		fmt.Fprintf(os.Stderr, "usage: %s %s [argument ...]\n", called, strings.Join(names, "|"))
		os.Exit(2)
	}
	collectFrom(startHeap(list[i].name))
	os.Exit(list[i].run())
}
