package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/site/icn"
	"firstlight.dev/firstlight/assets/site/inventory"
)

func newSiteImportCommand() *cobra.Command {
	var userConfig, nodes, out string
	var lists []string
	cmd := &cobra.Command{
		Use:   "import [--inventory FILE]... [--user-config FILE] [--nodes FILE] [--out FILE]",
		Short: "Make a site file of lists of servers, or of ICN's user_config.sh and nodes.json",
		Long: `Make a site file and print it: of lists of servers, which are tables (CSV) with a header, or what NetBox or MAAS
export as JSON, or of ICN's user_config.sh and nodes.json. What could not be carried over is on standard error, one line
each, with the reason. The site file holds the passwords of BMCs in clear and those of users as hashes.
ICN's shell file is parsed, never executed; its variables in the environment count as they did for ICN's scripts: below
what the file assigns.
Exit code 1 if the site that results has problems, or if ICN's files do not say how the appliance reaches the BMCs; it is
written nevertheless.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch isICN := userConfig != "" || nodes != ""; {
			case isICN && len(lists) > 0:
				return commandline.NewUsageError(errors.New("--inventory is of other files than --user-config and --nodes; import one kind"))
			case isICN:
				return importICN(cmd, userConfig, nodes, out)
			case len(lists) > 0:
				return importLists(cmd, lists, out)
			}
			return commandline.NewUsageError(errors.New("nothing to import; give --inventory, --user-config or --nodes"))
		},
	}
	cmd.Flags().StringArrayVar(&lists, "inventory", nil, "a list of servers: CSV, or JSON of NetBox or MAAS; may be repeated")
	cmd.Flags().StringVar(&userConfig, "user-config", "", "ICN's user_config.sh, of any generation")
	cmd.Flags().StringVar(&nodes, "nodes", "", "ICN's nodes.json")
	cmd.Flags().StringVar(&out, "out", "", "write the site to this new file instead of standard output")
	return cmd
}

func importICN(cmd *cobra.Command, userConfig, nodes, out string) error {
	config, err := importFile(userConfig)
	if err != nil {
		return err
	}

	servers, err := importFile(nodes)
	if err != nil {
		return err
	}

	text, notes, err := icn.Import(icn.Input{UserConfig: config, Nodes: servers, Environment: os.Environ()})
	if err != nil {
		return err
	}
	var lines []string
	for _, n := range notes {
		lines = append(lines, n.String())
	}
	if err := writeImported(cmd, out, text, lines); err != nil {
		return err
	}
	if i := slices.IndexFunc(notes, func(n icn.Note) bool { return n.IsMissing }); i >= 0 {
		return fmt.Errorf("check imported site: its nodes cannot be installed before %s is completed", notes[i].Subject)
	}
	return nil
}

func importLists(cmd *cobra.Command, names []string, out string) error {
	var files []inventory.File
	for _, name := range names {
		data, err := readSite(cmd.InOrStdin(), name)
		if err != nil {
			return err
		}
		files = append(files, inventory.File{Name: displayName(name), Data: data})
	}
	text, notes, err := inventory.Import(files)
	if err != nil {
		return err
	}
	return writeImported(cmd, out, text, notes)
}

// writeImported writes a site, then what was not carried over, then what is wrong with it.
func writeImported(cmd *cobra.Command, out string, text []byte, notes []string) (err error) {
	name := "site.yaml"
	if out == "" {
		_, err = cmd.OutOrStdout().Write(text)
	} else {
		name = out
		err = writeNew(out, text)
	}
	if err != nil {
		return err
	}

	for _, n := range notes {
		fmt.Fprintln(cmd.ErrOrStderr(), n)
	}
	if _, problems := site.Load(name, text); len(problems) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), problems)
		return fmt.Errorf("check imported site: %s, correct what was written", commandline.Amount(len(problems), "problem"))
	}
	return nil
}

func importFile(name string) (*icn.File, error) {
	if name == "" {
		return nil, nil
	}

	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}

	return &icn.File{Name: name, Data: data}, nil
}

// writeNew writes a file that only its owner can read, and replaces none.
func writeNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write site: %w", err)
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return fmt.Errorf("write site: %w", err)
	}

	return f.Close()
}
