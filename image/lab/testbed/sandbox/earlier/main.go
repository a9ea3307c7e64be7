// Command earlier is the control plane of an earlier Kubernetes, for tests of what runs on a Kubernetes that is there.
// Its first argument chooses the program. No image has it.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	programs := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllermanager.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	}
	var newCommand func() *cobra.Command
	if len(os.Args) > 1 {
		newCommand = programs[os.Args[1]]
	}
	if newCommand == nil {
		fmt.Fprintln(os.Stderr, "earlier: name a program: kube-apiserver, kube-controller-manager or kube-scheduler")
		os.Exit(2)
	}
	os.Args = os.Args[1:]
	os.Exit(cli.Run(newCommand()))
}
