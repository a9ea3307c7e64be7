package main

import (
	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/image/lab/virtualrack"
)

// completeMachines lets shells complete the names of a rack's machines, and then others, word by word.
func (f *labFlags) completeMachines(words ...[]string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			if len(args) > len(words) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return words[len(args)-1], cobra.ShellCompDirectiveNoFileComp
		}

		c, err := f.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		rack, err := c.Rack()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}

		names := []string{virtualrack.Appliance}
		for _, n := range rack.Nodes {
			names = append(names, n.Name)
		}

		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
