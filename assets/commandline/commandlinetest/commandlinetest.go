// Package commandlinetest holds every command of a program to what all have in common.
package commandlinetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/commandline"
)

// Exceptions are commands, by their words below the program, that leave things to somebody else.
type Exceptions struct {
	AnyArguments []string // they take any number of arguments
	AnyFlags     []string // they take any number of arguments, and flags that they do not know
}

// CheckUsage holds that -h is 0 and what a command does not know is 2, in each command that there is. It returns how
// many there are.
func CheckUsage(t *testing.T, newRoot func() *cobra.Command, except Exceptions) int {
	t.Helper()
	run := func(args ...string) int { return commandline.Run(t.Context(), newRoot(), args) }
	seen := 0
	visit(newRoot(), nil, func(_ *cobra.Command, words []string) {
		seen++
		name := strings.Join(words, " ")
		assert.Equal(t, 0, run(append(words, "-h")...), "%s -h", name)
		if slices.Contains(except.AnyFlags, name) {
			return
		}

		assert.Equal(t, 2, run(append(words, "--nonsense")...), "%s --nonsense", name)
		if !slices.Contains(except.AnyArguments, name) {
			many := append(words, slices.Repeat([]string{"nonsense"}, 10)...)
			assert.Equal(t, 2, run(many...), "%s nonsense", name)
		}
	})
	return seen
}

// CheckOutputs holds that each flag -o knows text and JSON and nothing else. It returns the commands that have it.
func CheckOutputs(t *testing.T, newRoot func() *cobra.Command) (with []string) {
	t.Helper()
	visit(newRoot(), nil, func(cmd *cobra.Command, words []string) {
		flag := cmd.Flag("output")
		if flag == nil {
			return
		}

		name := strings.Join(words, " ")
		with = append(with, name)
		assert.Equal(t, "text", flag.DefValue, name)
		assert.Equal(t, "o", flag.Shorthand, name)
		for _, known := range []string{"json", "text"} {
			assert.NoError(t, flag.Value.Set(known), "%s -o %s", name, known)
		}
		assert.Equal(t, 2, commandline.Run(t.Context(), newRoot(), append(words, "-o", "xml")), "%s -o xml", name)
	})
	return with
}

// visit calls do with every command below cmd, and with the words that name it.
func visit(cmd *cobra.Command, words []string, do func(cmd *cobra.Command, words []string)) {
	do(cmd, words)
	for _, sub := range cmd.Commands() {
		visit(sub, append(slices.Clip(words), sub.Name()), do)
	}
}
