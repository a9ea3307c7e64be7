package main

import (
	"context"
	"strings"
	"time"

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

// completeTimeout is how long a person who pressed Tab waits for an appliance.
const completeTimeout = 2 * time.Second

// completeArtifacts lets shells complete the names of artifacts that the appliance has, in the first places words of
// the command line; after them is what then says. An appliance that does not answer has none.
func (f *artifactFlags) completeArtifacts(places int, then cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= places {
			return nil, then
		}

		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		var names []string
		for _, kind := range artifactKinds {
			if before, _, found := strings.Cut(typed, "/"); found && before != kind {
				continue
			}
			_, have, err := f.list(ctx, kind)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, a := range have {
				names = append(names, kind+"/"+a.ImageName)
			}
		}

		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
