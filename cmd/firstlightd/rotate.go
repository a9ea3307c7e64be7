package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/api"
)

func newRotateCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "rotate authority|packages|nodes|ironic|standin-bmc|bmc [NODE...]|cluster NAME",
		Short: "Replace a secret of the appliance while the rack is in service",
		Long: `Replace a secret of the appliance while the rack is in service. A power cut at any moment is gone on from.

nodes: the SSH log-in to nodes. The next key is brought to every node by the current one; when every node has answered,
it is used, and the former one is taken from every node. Both let the appliance in until then.

authority: what signs the certificates of all that the appliance serves. The next one lies next to the current one.
Ramdisks, nodes and the appliance's own parts are brought to trust both; when every node in service does, and none is
being installed, the next one signs; the former one is taken away everywhere twenty minutes later. Workstations that
upload and browsers must be told of the next one. A machine of Cluster API that was told of the current one alone is
waited for until it is replaced.

packages: the key that signs the appliance's packages. The next one is brought to every node that has the current one,
and to those that are installed from now on; when every node in service has both, the next one signs, and the former one
is taken from every node. A machine of Cluster API that was told of the current one alone is waited for until it is
replaced.

ironic: the password of Ironic's API. Ironic and its operator restart; servers notice nothing.

standin-bmc: the password by which Ironic speaks to what stands in for the BMC of nodes that have none. The former one is
taken until Ironic has the next one for each of them.

bmc: the passwords of BMCs, of all or of those of the nodes that are named, by Redfish or IPMI as site.yaml has it. Each
next password is on DATA before its BMC is asked, and Ironic gets it when the BMC has taken a login with it. A BMC that
refuses is named, and its present password stays. site.yaml keeps the former password, which stands for the new one
until somebody edits it. The new ones are in the Secrets metal3/NODE-bmc-secret, on DATA and in away copies alone: make
an away copy afterwards (firstlightd backup).

cluster: what signs in a workload cluster that a Provisioning installed: the authorities of Kubernetes, of etcd and of
the front proxy, and the key of service accounts. One control plane after another, then the workers, are brought to
trust both; then the next ones sign, and there is another kubeconfig (firstlightd kubeconfig NAME); 25 hours later, when
no pod has a token of before, the former ones are trusted no more. Pods go on running. firstlightd why NAME says how far
it is.`,
		Args:              checkRotateArgs,
		ValidArgsFunction: completeRotate(&socket),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := api.Client{Socket: socket}.Rotate(cmd.Context(), args[0], args[1:]...)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), text)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&socket, "socket", status.SocketPath, "where the daemon answers")
	return cmd
}

// checkRotateArgs: one secret, of BMCs the nodes that are meant, and the cluster whose authorities are.
func checkRotateArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && args[0] == "bmc" {
		return nil
	}
	if len(args) > 0 && args[0] == "cluster" {
		return cobra.ExactArgs(2)(cmd, args)
	}
	return cobra.ExactArgs(1)(cmd, args)
}

func completeRotate(socket *string) cobra.CompletionFunc {
	nodes := completeNames(socket, listNodes)
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return []cobra.Completion{"authority", "packages", "nodes", "ironic", "standin-bmc", "bmc", "cluster"}, cobra.ShellCompDirectiveNoFileComp
		case args[0] == "bmc":
			return nodes(cmd, args, begun)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}
