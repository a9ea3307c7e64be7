package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// usageError marks a wrong command line: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// strict makes every mistake in the words and flags of a command line a usage error, in root and in all
// commands below it. What cobra checks and adds by itself would end with 1, or even with 0.
func strict(root *cobra.Command) *cobra.Command {
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
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
	strictBelow(root)
	return root
}

func strictBelow(cmd *cobra.Command) {
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check != nil {
			if err := check(cmd, args); err != nil {
				return usageError{err}
			}
		}
		if err := cmp.Or(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
			return usageError{err}
		}
		return nil
	}
	if !cmd.Runnable() { // cobra would show the help whatever the arguments are
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range cmd.Commands() {
		strictBelow(sub)
	}
}

// format is -o, the same for whatever shows or lists: text for people, JSON for programs.
type format string

// Formats.
const (
	formatText format = "text"
	formatJSON format = "json"
)

func (f *format) bind(cmd *cobra.Command) {
	*f = formatText
	cmd.Flags().VarP(f, "output", "o", "text or json")
}

func (f *format) String() string { return string(*f) }

// Type is what the help calls a value.
func (f *format) Type() string { return "FORMAT" }

// Set takes the word behind -o.
func (f *format) Set(word string) error {
	switch format(word) {
	case formatText, formatJSON:
		*f = format(word)
		return nil
	}
	return errors.New("use text or json")
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
