package try

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/image/lab/container"
	"firstlight.dev/firstlight/image/lab/simulator"
)

// Command is a command that will run in the appliance; NotRunning if the rack is down.
func (r Rack) Command(ctx context.Context, words ...string) (*exec.Cmd, error) {
	now, err := r.Processes()
	if err != nil {
		return nil, err
	}
	if !now.Appliance.Alive() { // whoever has its number since would be entered
		return nil, fmt.Errorf("%s: the appliance is between two starts; try again in a moment", r.Dir)
	}

	return container.Command(ctx, now.Appliance.PID, words...), nil
}

// Document asks the appliance how it is. It does not answer before its daemon does.
func (r Rack) Document(ctx context.Context) (status.Document, error) {
	var d status.Document
	cmd, err := r.Command(ctx, "firstlightd", "status", "-o", "json")
	if err != nil {
		return d, err
	}

	out, err := cmd.Output()
	if err != nil {
		return d, fmt.Errorf("ask the appliance: %w", err)
	}
	if err := json.Unmarshal(out, &d); err != nil {
		return d, fmt.Errorf("ask the appliance: %w", err)
	}

	return d, nil
}

// Servers is what each simulated server does.
func (r Rack) Servers() (map[string]simulator.State, error) {
	return simulator.Kept(r.path(serversFile))
}

// provisioned is the state of a BareMetalHost whose image is on its disk (metal3.io/v1alpha1).
const provisioned = "provisioned"

// IsDone reports whether the appliance has done all that it can do for simulated servers: it is Ready, and each has its
// image. To verify them it would have to log in to a system that none of them has.
func IsDone(d status.Document) bool {
	for _, n := range d.Nodes {
		if n.State != provisioned {
			return false
		}
	}
	return IsReady(d)
}

// IsReady reports whether all stages hold that come before Ready.
func IsReady(d status.Document) bool {
	for _, s := range d.Stages {
		if s.State != status.StateReady && !s.AfterReady {
			return false
		}
	}
	return len(d.Stages) > 0
}

// Describe is one line of how far a rack is: "7 of 30 stages; waits for …" until the appliance is Ready, then how many
// servers are in which state, in the order of the site.
func Describe(d status.Document) string {
	ready, all := 0, 0
	for _, s := range d.Stages {
		if s.AfterReady {
			continue
		}
		all++
		if s.State == status.StateReady {
			ready++
		}
	}
	if ready < all {
		return fmt.Sprintf("%d of %d stages; %s", ready, all, d.Summary)
	}

	words := make([]string, len(d.Nodes))
	for i, n := range d.Nodes {
		words[i] = n.Name + " " + n.State
		if n.Error != "" {
			words[i] += " (" + n.Error + ")"
		}
	}

	return strings.Join(append([]string{"Ready"}, words...), ", ")
}
