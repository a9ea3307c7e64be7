package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"

	"firstlight.dev/firstlight/assets/commandline"
	"firstlight.dev/firstlight/daemon/appliance/kube"
	"firstlight.dev/firstlight/daemon/appliance/vault"
)

// secretList is what the command shows.
type secretList struct {
	Secrets  []vault.Held `json:"secrets"`
	Unlisted []string     `json:"unlisted,omitempty"` // Secrets of the appliance's namespaces that are on no list
	Error    string       `json:"error,omitempty"`    // why Secrets of the API are missing
}

func newSecretsCommand() *cobra.Command {
	var output commandline.Format
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "List every secret of this appliance: owner, age, where it is used and how it is replaced; never a value",
		Long: `List every secret of this appliance: owner, age, where it is used, how it is replaced, and whether an away copy has it.
No file is opened, and the API is asked for names alone. -o json has their places, too.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := listSecrets(cmd.Context())
			if output == commandline.JSON {
				return commandline.WriteJSON(cmd.OutOrStdout(), list)
			}
			return list.write(cmd.OutOrStdout(), time.Now())
		},
	}
	output.Bind(cmd)
	return cmd
}

func listSecrets(ctx context.Context) (list secretList) {
	objects, err := listSecretNames(ctx)
	if err != nil {
		list.Error = "Secrets of the API are not listed: " + err.Error()
	}

	list.Secrets = vault.Hold("", objects)
	own := map[string]bool{}
	for _, namespace := range vault.Namespaces() {
		own[namespace] = true
	}

	for _, o := range objects {
		if _, listed := vault.OfObject(o.Namespace + "/" + o.Name); own[o.Namespace] && !listed {
			list.Unlisted = append(list.Unlisted, o.Namespace+"/"+o.Name)
		}
	}

	return list
}

// listSecretNames asks the API for the names of all Secrets; what is in them does not leave it.
func listSecretNames(ctx context.Context) ([]vault.Object, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kube.AdminConfig)
	if err != nil {
		return nil, err
	}

	config.Timeout = 15 * time.Second
	c, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}

	found, err := c.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	var all []vault.Object
	for _, o := range found.Items {
		all = append(all, vault.Object{Namespace: o.Namespace, Name: o.Name, Created: o.CreationTimestamp.Time})
	}

	return all, nil
}

func (l secretList) write(w io.Writer, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SECRET\tN\tAGE\tAWAY\tOWNER\tUSED\tREPLACED")
	for _, s := range l.Secrets {
		if s.Count == 0 {
			continue
		}
		saved := "no"
		if s.Away {
			saved = "yes"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.Count, ageText(now.Sub(s.Since)), saved, s.Owner, s.Used, s.Rotated)
	}
	if err := t.Flush(); err != nil {
		return err
	}

	if len(l.Unlisted) > 0 {
		fmt.Fprintf(w, "\nOn no list: Secrets %s\n", strings.Join(l.Unlisted, ", "))
	}
	if l.Error != "" {
		fmt.Fprintf(w, "\n%s\n", l.Error)
	}

	return nil
}

// ageText is a length of time in its largest unit.
func ageText(age time.Duration) string {
	switch {
	case age < time.Hour:
		return fmt.Sprintf("%d min", int(age.Minutes()))
	case age < 48*time.Hour:
		return fmt.Sprintf("%d h", int(age.Hours()))
	}
	return fmt.Sprintf("%d d", int(age.Hours()/24))
}
