package main

import (
	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/daemon/appliance/api"
)

func newApproveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approve NODE... | --all",
		Short: "Make nodes of machines that the site's policy found",
		Long: `Make nodes of machines that booted from the network and that discover of site.yaml allows.

firstlightd unknown lists them with the names that they get. From then on they are nodes as if site.yaml named them:
checked, inspected, installed and verified. --all takes those that await approval now.

NODE/MAC/BMC, or NODE/BMC of a server that is off, is the machine that was listed: if another one has its name
meanwhile, nothing is done.`,
	}
	return forNodes(cmd, api.Client.Approve, "is a node now")
}
