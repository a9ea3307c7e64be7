package view

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"

	"firstlight.dev/firstlight/image/lab/virtualrack"
)

// ShowCluster shows the nodes of a cluster, and what its pods answered each other when it was verified.
func ShowCluster(ctx context.Context, w io.Writer, c virtualrack.Client, name string) error {
	on := func(command string) ([]byte, error) {
		args, err := c.SSH(virtualrack.Appliance)
		if err != nil {
			return nil, err
		}

		out, err := exec.CommandContext(ctx, args[0], append(args[1:], command)...).Output()
		if err != nil {
			return nil, fmt.Errorf("ask cluster %s: %w", name, err)
		}

		return out, nil
	}
	dir := "/opt/kud/multi-cluster/" + name + "/artifacts/"
	get := "kubectl --kubeconfig " + dir + "admin.conf get nodes -o wide"
	nodes, err := on(get)
	if err != nil {
		return err
	}

	text, err := on("cat " + dir + "verification.json")
	if err != nil {
		return err
	}

	var report struct {
		Questions []struct{ From, What, Got string }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return fmt.Errorf("read verification of cluster %s: %w", name, err)
	}

	fmt.Fprintf(w, "Cluster %s: %s\n%s\nAsked of a pod on each node:\n", name, get, nodes)
	for _, q := range report.Questions {
		fmt.Fprintf(w, "  from %s, %s: %s\n", q.From, q.What, q.Got)
	}

	_, err = fmt.Fprintln(w)
	return err
}
