package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
)

// everyCommand calls do with every command below cmd, and with the words that name it.
func everyCommand(cmd *cobra.Command, words []string, do func(cmd *cobra.Command, words []string)) {
	do(cmd, words)
	for _, sub := range cmd.Commands() {
		everyCommand(sub, append(words[:len(words):len(words)], sub.Name()), do)
	}
}

// TestEveryCommandLine: -h is 0 and what a command does not know is 2, in each command that there is.
func TestEveryCommandLine(t *testing.T) {
	seen := 0
	everyCommand(newRootCommand(), nil, func(_ *cobra.Command, words []string) {
		seen++
		name := strings.Join(words, " ")
		assert.Equal(t, 0, run(t.Context(), append(words, "-h")), "%s -h", name)
		assert.Equal(t, 2, run(t.Context(), append(words, "--nonsense")), "%s --nonsense", name)
		many := append(words, strings.Split(strings.Repeat("nonsense ", 9)+"nonsense", " ")...)
		assert.Equal(t, 2, run(t.Context(), many), "%s nonsense", name)
	})
	assert.Greater(t, seen, 15)
}

// TestEveryOutputKnowsTextAndJSON and nothing else, wherever there is -o.
func TestEveryOutputKnowsTextAndJSON(t *testing.T) {
	with := map[string]bool{}
	everyCommand(newRootCommand(), nil, func(cmd *cobra.Command, words []string) {
		flag := cmd.Flag("output")
		if flag == nil {
			return
		}
		name := strings.Join(words, " ")
		with[name] = true
		assert.Equal(t, "text", flag.DefValue, name)
		for _, known := range []string{"json", "text"} {
			assert.NoError(t, flag.Value.Set(known), "%s -o %s", name, known)
		}
		assert.Equal(t, 2, run(t.Context(), append(words, "-o", "xml")), "%s -o xml", name)
	})
	assert.Equal(t, map[string]bool{"audit": true, "login": true, "secrets": true, "status": true, "unknown": true, "why": true}, with)
}
