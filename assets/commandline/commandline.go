// Package commandline is what the commands of this project have in common: every mistake in words and flags is
// told apart from what fails later (exit code 2, not 1), and -o takes text or json.
package commandline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// UsageError marks a wrong command line: exit code 2.
type UsageError struct{ error }

// NewUsageError marks an error as one of the command line.
func NewUsageError(err error) error { return UsageError{err} }

func (e UsageError) Unwrap() error { return e.error }

// MarkUsageErrors makes every mistake in the words and flags of a command line a usage error, in root and in all
// commands below it. What cobra checks and adds by itself would end with 1, or even with 0.
func MarkUsageErrors(root *cobra.Command) *cobra.Command {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError{err} })
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = func(_ *cobra.Command, topic []string) error {
			found, rest, err := root.Find(topic)
			if err == nil && len(rest) > 0 {
				err = fmt.Errorf("unknown command %q for %q", rest[0], found.CommandPath())
			}
			return err
		}
	}

	markTree(root)
	return root
}

// AddGroup adds commands under a title of the help.
func AddGroup(root *cobra.Command, title string, all ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, cmd := range all {
		cmd.GroupID = title
	}

	root.AddCommand(all...)
}

func markTree(cmd *cobra.Command) {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check != nil {
			if err := check(cmd, args); err != nil {
				return UsageError{err}
			}
		}
		if err := cmp.Or(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
			return UsageError{err}
		}
		return nil
	}
	if !cmd.Runnable() { // cobra would show the help whatever the arguments are
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}

	for _, sub := range cmd.Commands() {
		markTree(sub)
	}
}

// Format is -o, the same for whatever shows or lists: text for people, JSON for programs.
type Format string

// Formats.
const (
	Text Format = "text"
	JSON Format = "json"
)

// Bind gives a command the flag.
func (f *Format) Bind(cmd *cobra.Command) {
	*f = Text
	cmd.Flags().VarP(f, "output", "o", "text or json")
	CompleteFlag(cmd, "output", string(Text), string(JSON))
}

// CompleteFlag lets shells complete the values of a flag that takes one of a few words.
func CompleteFlag(cmd *cobra.Command, flag string, values ...string) {
	complete := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // there is no such flag, or it was given values before
	}
}

// String is the word.
func (f *Format) String() string { return string(*f) }

// Type is what the help calls a value.
func (f *Format) Type() string { return "FORMAT" }

// Set takes the word behind -o.
func (f *Format) Set(word string) error {
	switch Format(word) {
	case Text, JSON:
		*f = Format(word)
		return nil
	}
	return errors.New("use text or json")
}

// WriteJSON writes a document as people read it.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
