package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// afterAPI runs a part of the control plane only once the API server that it works with says that it
// is ready (GET /readyz).
//
// Without it both parts start together with the API server, ask it for all they need while it starts,
// end themselves after ten seconds without an answer, and begin again from nothing: three programs
// compete for the processors where one is waited for.
func afterAPI(run func() int) func() int {
	return func() int {
		if kubeconfig := kubeconfigOf(os.Args[1:]); kubeconfig != "" {
			waitForAPI(context.Background(), kubeconfig)
		}
		return run()
	}
}

// kubeconfigOf is the value of --kubeconfig among arguments of which no other is known here.
func kubeconfigOf(args []string) string {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	kubeconfig := flags.String("kubeconfig", "", "")
	_ = flags.Parse(args) // the program itself says what is wrong with its arguments

	return *kubeconfig
}

// waitForAPI asks less and less often, up to every five seconds, and says each time why it waits.
func waitForAPI(ctx context.Context, kubeconfig string) {
	pause := wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 1 << 30, Cap: 5 * time.Second}
	for {
		err := checkAPI(ctx, kubeconfig)
		if err == nil {
			return
		}
		fmt.Fprintf(os.Stderr, "waiting for the API server of %s: %v\n", kubeconfig, err)
		time.Sleep(pause.Step())
	}
}

func checkAPI(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.Timeout = 30 * time.Second

	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return set.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}
