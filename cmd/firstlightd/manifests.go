package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"firstlight.dev/firstlight/daemon/engine/apply"
)

func newManifestsCommand() *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "manifests [KIND[/NAME]]",
		Short: "Print the objects that the appliance has applied to its API",
		Long: `Print, as YAML, what the appliance has applied to its own Kubernetes API, each object with its owner (the
field manager). Values of Secrets are left out. The control plane's own pods are in /etc/kubernetes/manifests.

  firstlightd manifests                              # all of them
  firstlightd manifests deployment                   # of one kind
  firstlightd manifests deployment/baremetal-operator`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := listApplied(cmd, kubeconfig)
			if wanted := strings.Join(args, ""); wanted != "" {
				all = selectApplied(all, wanted)
				if len(all) == 0 && err == nil {
					return fmt.Errorf("the appliance has applied no %s; without an argument all are printed", wanted)
				}
			}
			if werr := writeApplied(cmd.OutOrStdout(), all); werr != nil {
				return werr
			}
			return err
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", defaultKubeconfig(), "of the appliance's API")
	return cmd
}

func listApplied(cmd *cobra.Command, kubeconfig string) ([]apply.Applied, error) {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reach the API: %w", err)
	}

	config.UserAgent, config.QPS, config.Burst = "firstlightd-manifests", 50, 100
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reach the API: %w", err)
	}

	api, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reach the API: %w", err)
	}
	return apply.ListApplied(cmd.Context(), kinds, api)
}

// selectApplied are the objects of a kind, or one of them, in upper or lower case.
func selectApplied(all []apply.Applied, wanted string) (some []apply.Applied) {
	kind, name, one := strings.Cut(wanted, "/")
	for _, a := range all {
		if strings.EqualFold(a.Object.GetKind(), kind) && (!one || a.Object.GetName() == name) {
			some = append(some, a)
		}
	}
	return some
}

func writeApplied(w io.Writer, all []apply.Applied) error {
	for _, a := range all {
		text, err := yaml.Marshal(a.Object)
		if err != nil {
			return fmt.Errorf("write %s %s: %w", a.Object.GetKind(), a.Object.GetName(), err)
		}
		if _, err := fmt.Fprintf(w, "---\n# owner: %s\n%s", a.Owner, text); err != nil {
			return err
		}
	}
	return nil
}
