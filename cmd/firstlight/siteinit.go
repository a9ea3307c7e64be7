package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/assets/site"
)

func newSiteInitCommand() *cobra.Command {
	var keys []string
	var start siteStart
	var out string
	cmd := &cobra.Command{
		Use:   "init --bmcs CIDR [--out FILE]",
		Short: "Print a first site file: whoever boots from the network is shown, and approved by you",
		Long: `Print a first site file, with your SSH key, in which nothing is left to look up: networks are detected, and each machine
that boots from the network is inspected, shown by firstlightd discovered, and installed when you approve it. Lists of
servers are imported instead: firstlight site import --inventory FILE.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(keys) == 0 {
				home, err := os.UserHomeDir()
				if err != nil {
					return fmt.Errorf("find your SSH keys: %w; name one with --ssh-key", err)
				}
				keys, _ = filepath.Glob(filepath.Join(home, ".ssh", "id_*.pub")) // the pattern is sound
			}
			var err error
			if start.Keys, err = readPublicKeys(keys); err != nil {
				return err
			}

			text, err := start.document()
			if err != nil {
				return err
			}
			if out == "" {
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return writeNew(out, text)
		},
	}
	cmd.Flags().StringVar(&start.Name, "name", "firstlight", "name of the site")
	cmd.Flags().StringVar(&start.BMCs, "bmcs", "", "where the BMCs of machines are, as 10.10.110.0/24; one elsewhere is told no password")
	_ = cmd.MarkFlagRequired("bmcs")
	cmd.Flags().IntVar(&start.Count, "count", 3, "how many machines may become nodes")
	cmd.Flags().StringVar(&start.Interface, "interface", "", "NIC of the appliance on the network that servers boot from (default detected)")
	cmd.Flags().StringArrayVar(&keys, "ssh-key", nil, "file of a public key; may be repeated (default ~/.ssh/id_*.pub)")
	cmd.Flags().StringVar(&out, "out", "", "write the site to this new file instead of standard output")
	return cmd
}

// siteStart is what a first site file is made of.
type siteStart struct {
	Name, Interface, BMCs string
	Count                 int
	Keys                  []string // as in authorized_keys
}

var firstSite = template.Must(template.New("site").Parse(`# What is left out is detected or has a default: firstlight site show FILE. Every field is in docs/site.md.
name: {{.Name}}
networks:
  provisioning:
{{- if .Interface}}
    interface: {{.Interface}}
{{- end}}
    allow: [ssh]
{{- with .Keys}}
access:
  sshKeys:
{{- range .}}
    - {{.}}
{{- end}}
{{- end}}
nodeDefaults:
  # overwrite: true  # consent to lose what is on their disks before the first installation
  bmc: {username: admin, password: "change me"}  # tried on each BMC that is found, at most twice an hour
discover:
  count: {{.Count}}
  bmcs: [{{.BMCs}}]
  approve: each  # firstlightd discovered shows them; firstlightd approve NAME lets one become a node
`))

func (s siteStart) document() ([]byte, error) {
	var text bytes.Buffer
	if err := firstSite.Execute(&text, s); err != nil {
		return nil, err
	}
	if _, problems := site.Load("site.yaml", text.Bytes()); len(problems) > 0 {
		return nil, commandline.NewUsageError(problems.Err())
	}
	return text.Bytes(), nil
}

// readPublicKeys reads files of public keys, one to a line.
func readPublicKeys(files []string) (keys []string, err error) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read SSH key: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if line == "" || slices.Contains(keys, line) {
				continue
			}
			if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line)); err != nil {
				return nil, fmt.Errorf("%s is no public SSH key; name the file that ends in .pub", file)
			}
			keys = append(keys, line)
		}
	}
	return keys, nil
}
