package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/site/summary"
)

func newSiteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "site",
		Short: "Check, show, convert and edit the site document",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newSiteValidateCommand(), newSiteShowCommand(), newSiteSchemaCommand(), newSiteInitCommand(), newSiteImportCommand(),
		newSiteEditCommand(),
	)
	return cmd
}

func newSiteValidateCommand() *cobra.Command {
	var output commandline.Format
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Print every problem of site files, one per line",
		Long: "Print every problem of site files, one per line as FILE:LINE: PATH: PROBLEM; of many of one kind the first.\n" +
			"Exit code 1 if there is one. '-' is standard input.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			problems := site.Problems{}
			var sound []string
			var unread error
			for _, file := range files {
				data, err := readSite(cmd.InOrStdin(), file)
				if err != nil {
					unread = errors.Join(unread, err)
					continue
				}

				s, found := site.Load(displayName(file), data)
				problems = append(problems, found...)
				if len(found) == 0 {
					sound = append(sound, summary.Describe(displayName(file), s))
				}
			}

			if output == commandline.JSON {
				if err := commandline.WriteJSON(cmd.OutOrStdout(), problems); err != nil {
					return err
				}
			} else {
				for _, line := range append(strings.Split(problems.Fold().String(), "\n"), sound...) {
					if line != "" {
						fmt.Fprintln(cmd.OutOrStdout(), line)
					}
				}
			}

			if len(problems) > 0 {
				unread = errors.Join(unread, fmt.Errorf("%s in %s", commandline.Amount(len(problems), "problem"), commandline.Amount(len(files), "file")))
			}

			return unread
		},
	}
	output.Bind(cmd)
	return cmd
}

func newSiteShowCommand() *cobra.Command {
	var output yamlFormat
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print a site with its defaults filled in and its secrets hidden",
		Long:  "Print a site with its defaults filled in and its secrets hidden.\nWithout FILE: the site of a stick without site file. '-' is standard input.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			var data []byte
			name := "site.yaml"
			if len(files) == 1 {
				var err error
				if data, err = readSite(cmd.InOrStdin(), files[0]); err != nil {
					return err
				}
				name = displayName(files[0])
			}

			s, problems := site.Load(name, data)
			if err := problems.Err(); err != nil {
				return err
			}

			s = s.WithDefaults()
			if output.Format == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), s)
			}

			text, err := s.YAML()
			if err != nil {
				return err
			}

			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	output.Format = commandline.Text
	cmd.Flags().VarP(&output, "output", "o", "text, which is YAML, or json")
	return cmd
}

// yamlFormat is -o of what a person reads as YAML.
type yamlFormat struct{ commandline.Format }

// Set takes yaml for text.
func (f *yamlFormat) Set(word string) error {
	if word == "yaml" {
		word = string(commandline.Text)
	}
	return f.Format.Set(word)
}

func newSiteSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the site document",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			schema, err := site.Schema()
			if err != nil {
				return err
			}

			_, err = cmd.OutOrStdout().Write(schema)
			return err
		},
	}
}

// readSite reads one document, '-' from stdin, and not much more than a document may hold.
func readSite(stdin io.Reader, file string) ([]byte, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read site: %w", err)
		}
		defer f.Close()

		in = f
	}

	data, err := io.ReadAll(io.LimitReader(in, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("read site %s: %w", file, err)
	}

	return data, nil
}

// displayName is the name of a file in messages.
func displayName(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}
