package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/site"
)

func newSiteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "site",
		Short: "Check, show and convert the site document",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSiteValidateCommand(), newSiteShowCommand(), newSiteSchemaCommand(), newSiteImportCommand())
	return cmd
}

func newSiteValidateCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Print every problem of site files, one per line",
		Long:  "Print every problem of site files, one per line as FILE:LINE: PATH: PROBLEM.\nExit code 1 if there is one. '-' is standard input.",
		Args:  usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, files []string) error {
			if output != "text" && output != "json" {
				return usageError{fmt.Errorf("output %q is not known; use text or json", output)}
			}
			problems := site.Problems{}
			for _, file := range files {
				data, err := readSite(cmd.InOrStdin(), file)
				if err != nil {
					return err
				}
				_, found := site.Load(called(file), data)
				problems = append(problems, found...)
			}
			if output == "json" {
				if err := writeJSON(cmd.OutOrStdout(), problems); err != nil {
					return err
				}
			} else if len(problems) > 0 {
				fmt.Fprintln(cmd.OutOrStdout(), problems)
			}
			if len(problems) > 0 {
				return fmt.Errorf("check %d site files: %d problems", len(files), len(problems))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func newSiteShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print a site with its defaults filled in and its secrets hidden",
		Long:  "Print a site with its defaults filled in and its secrets hidden.\nWithout FILE: the site of a stick without site file. '-' is standard input.",
		Args:  usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, files []string) error {
			var data []byte
			name := "site.yaml"
			if len(files) == 1 {
				var err error
				if data, err = readSite(cmd.InOrStdin(), files[0]); err != nil {
					return err
				}
				name = called(files[0])
			}
			s, problems := site.Load(name, data)
			if err := problems.Err(); err != nil {
				return err
			}
			s = s.WithDefaults()
			switch output {
			case "json":
				return writeJSON(cmd.OutOrStdout(), s)
			case "yaml":
				text, err := s.YAML()
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return usageError{fmt.Errorf("output %q is not known; use yaml or json", output)}
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "yaml", "yaml or json")
	return cmd
}

func newSiteSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the site document",
		Args:  usageArgs(cobra.NoArgs),
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

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// usageArgs makes a wrong number of arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

// called is the name of a file in messages.
func called(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}
