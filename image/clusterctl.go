package image

import (
	"context"
	"fmt"
	"strings"
)

// Clusterctl is what a workstation needs to work with the appliance's Cluster API, as the image has it.
type Clusterctl struct {
	Program    string            // file of this machine; clusterctl if it is called by that name
	Repository map[string]string // files of this machine by their names in the repository
}

// Where the recipe has them.
const (
	clusterctlProgram    = "cluster-api"
	clusterctlRepository = "/usr/share/firstlight/cluster-api/"
)

// Clusterctl finds the files in the cache, where the build of the image left them.
func (b *Builder) Clusterctl(ctx context.Context) (Clusterctl, error) {
	run, err := b.prepare(ctx, Locked)
	if err != nil {
		return Clusterctl{}, err
	}

	names := map[string]string{}
	for _, a := range run.r.Artifacts {
		if name, ok := strings.CutPrefix(a.To, clusterctlRepository); ok {
			names[titleOf(kindArtifact, a.Name)] = name
		}
	}

	found := Clusterctl{Repository: map[string]string{}}
	program := titleOf(kindProgram, clusterctlProgram)
	for _, p := range run.parts {
		name, isFile := names[p.Title()]
		if !isFile && p.Title() != program {
			continue
		}

		path := p.File
		if path == "" {
			item, ok := run.store.Lookup(p.dir(), p.Inputs.key(p.Kind, p.Name))
			if !ok {
				return Clusterctl{}, fmt.Errorf("find %s: it is not in the cache; build the image first", p.Title())
			}
			path = item.Path
		}

		if isFile {
			found.Repository[name] = path
		} else {
			found.Program = path
		}
	}

	if found.Program == "" || len(found.Repository) != len(names) {
		return Clusterctl{}, fmt.Errorf("find clusterctl: the recipe has no program %s", clusterctlProgram)
	}

	return found, nil
}
