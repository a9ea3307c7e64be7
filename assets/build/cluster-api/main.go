// Command cluster-api is Cluster API as the appliance runs it, linked once: its first argument, or the name it is
// called by, chooses the program. One file serves as the images of the three managers, on one shared layer, and as
// the appliance's clusterctl.
//
// The managers are upstream's own main packages, whole: they import packages that only their module may import, so
// the recipe patches each main.go into a package with a function Main.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/build/cluster-api/goflags"
	"firstlight.dev/firstlight/assets/build/cluster-api/offline"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	bootstrap "sigs.k8s.io/cluster-api/bootstrap/kubeadm"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/cmd"
	controlplane "sigs.k8s.io/cluster-api/controlplane/kubeadm"
	"sigs.k8s.io/cluster-api/core"
)

// program is one of the commands inside. Each ends its process itself if it fails.
type program struct {
	name string
	run  func()
}

// programs is the literal list of what this binary can be: providers by the names that clusterctl has for them.
func programs() []program {
	return []program{
		{"cluster-api", manager(core.Main)},
		{"bootstrap-kubeadm", manager(bootstrap.Main)},
		{"control-plane-kubeadm", manager(controlplane.Main)},
		{"clusterctl", runClusterctl},
	}
}

// manager is a manager with all of its flags.
func manager(run func()) func() {
	return func() {
		flag.CommandLine = goflags.Registered
		run()
	}
}

// runClusterctl is clusterctl with the repository that came with it. What the environment says already stays.
func runClusterctl() {
	executable, _ := os.Executable() // "": nothing came with it
	repository := offline.Repository(os.Getenv(offline.Variable), executable)
	for name, value := range map[string]string{offline.Variable: repository, offline.NoVersionCheck: "true"} {
		if os.Getenv(name) == "" {
			os.Setenv(name, value)
		}
	}

	config, _ := os.UserConfigDir()
	home, _ := os.UserHomeDir()
	args := offline.Arguments(os.Args[1:], repository, offline.HasOwnConfig(config, home))
	os.Args = append([]string{"clusterctl"}, args...)
	clusterctl.Execute()
}

func main() {
	list := programs()
	called := filepath.Base(os.Args[0])
	i := -1
	if len(os.Args) > 1 { // the first argument counts: in the managers' images the file has the name of one of them
		i = slices.IndexFunc(list, func(p program) bool { return p.name == os.Args[1] })
	}
	if i >= 0 {
		os.Args = os.Args[1:]
	} else {
		i = slices.IndexFunc(list, func(p program) bool { return p.name == called })
	}
	if i < 0 {
		names := make([]string, len(list))
		for n, p := range list {
			names[n] = p.name
		}
		fmt.Fprintf(os.Stderr, "usage: %s %s [argument ...]\n", called, strings.Join(names, "|"))
		os.Exit(2)
	}

	list[i].run()
}
