package page

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/appliance/vault"
)

// onSecrets is what the appliance replaces on demand.
var onSecrets = subject{"secrets", "/secrets", "/secrets"}

// allBMCs is the choice of those of all nodes: no node has that name.
const allBMCs = "*"

// newRotationActions replace what vault.Rotations lists. Who has what was replaced has lost it: the appliance's name is
// typed.
func newRotationActions() (all []action) {
	for _, r := range vault.Rotations() {
		a := action{
			name: "rotate-" + r.Name, on: onSecrets, needs: Owner, title: "Replace " + r.What,
			effect:  strings.TrimSpace(r.About),
			typed:   typeAppliance,
			offered: always,
			choice:  newRotationChoice(r.Of),
			do: func(_ context.Context, s *Server, o order) (result, error) {
				defer s.secrets.expire("")
				names := o.chosen
				if slices.Contains(names, allBMCs) {
					names = nil
				}
				text, err := s.deeds.Rotate(r.Name, names)
				return result{text: text}, err
			},
		}
		if a.choice != nil {
			a.offered = func(p *picture, name string) (about string, ok bool) {
				return "", len(a.choice.options(p, name)) > 0
			}
		}
		all = append(all, a)
	}
	return all
}

// newRotationChoice asks what a rotation is of; nil: there is one.
func newRotationChoice(of vault.Rotated) *choice {
	switch of {
	case vault.RotatedNodes:
		return &choice{legend: "BMCs of", options: listBMCs, preview: previewRotation("BMCs of ", listBMCs)}
	case vault.RotatedCluster:
		return &choice{
			legend: "Cluster", isOne: true, options: listRotatable, preview: previewRotation("cluster ", listRotatable),
		}
	}
	return nil
}

// listBMCs are the nodes of the site that have a BMC there, and all of them.
func listBMCs(p *picture, _ string) (all []option) {
	for _, name := range slices.Sorted(maps.Keys(p.noBMC)) {
		if !p.noBMC[name] {
			all = append(all, option{name, name})
		}
	}
	if len(all) == 0 {
		return nil
	}
	return append([]option{{allBMCs, "all nodes"}}, all...)
}

// listRotatable are the clusters whose authorities their installer replaces, if they are as wanted.
func listRotatable(p *picture, _ string) (all []option) {
	for _, c := range p.doc.Clusters {
		if c.Kind == status.KindProvisioning && c.State == status.ClusterReady {
			all = append(all, option{c.Name, c.Name})
		}
	}
	return all
}

// previewRotation says what of was chosen. Whether it can be replaced now is seen when it is.
func previewRotation(of string, options func(*picture, string) []option) func(
	context.Context, *Server, *picture, string, []string,
) (question, error) {
	return func(_ context.Context, _ *Server, p *picture, name string, chosen []string) (question, error) {
		var texts []string
		for _, o := range options(p, name) {
			if slices.Contains(chosen, o.Value) {
				texts = append(texts, o.Text)
			}
		}
		switch {
		case len(texts) != len(chosen):
			return question{}, errors.New("something has changed meanwhile; choose again")
		case len(texts) > 1 && chosen[0] == allBMCs:
			return question{}, errors.New("choose all nodes, or some of them")
		}
		return question{about: of + strings.Join(texts, ", ")}, nil
	}
}
