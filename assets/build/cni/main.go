// Command cni is the CNI plugins that the appliance and its clusters use, linked once: the name it is called by chooses
// the plugin, as containerd and the plugins themselves call each other. All plugins are mostly the same libraries.
//
// They are upstream's own main packages, whole: the recipe patches each into a package with a function Main.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	hostlocal "github.com/containernetworking/plugins/plugins/ipam/host-local"
	"github.com/containernetworking/plugins/plugins/ipam/static"
	"github.com/containernetworking/plugins/plugins/main/bridge"
	hostdevice "github.com/containernetworking/plugins/plugins/main/host-device"
	"github.com/containernetworking/plugins/plugins/main/ipvlan"
	"github.com/containernetworking/plugins/plugins/main/loopback"
	"github.com/containernetworking/plugins/plugins/main/macvlan"
	"github.com/containernetworking/plugins/plugins/main/ptp"
	"github.com/containernetworking/plugins/plugins/meta/portmap"
	"github.com/containernetworking/plugins/plugins/meta/tuning"
)

// plugin is one of the plugins inside. It ends its process itself if it fails.
type plugin struct {
	name string
	run  func()
}

// plugins is the literal list of what this binary can be.
func plugins() []plugin {
	return []plugin{
		{"bridge", bridge.Main},
		{"host-device", hostdevice.Main},
		{"host-local", hostlocal.Main},
		{"ipvlan", ipvlan.Main},
		{"loopback", loopback.Main},
		{"macvlan", macvlan.Main},
		{"portmap", portmap.Main},
		{"ptp", ptp.Main},
		{"static", static.Main},
		{"tuning", tuning.Main},
	}
}

func main() {
	list := plugins()
	called := filepath.Base(os.Args[0])
	i := slices.IndexFunc(list, func(p plugin) bool { return p.name == called })
	if i < 0 {
		names := make([]string, len(list))
		for n, p := range list {
			names[n] = p.name
		}
		fmt.Fprintf(os.Stderr, "%s is no plugin; call it by a link of the name %s\n", called, strings.Join(names, ", "))
		os.Exit(2)
	}

	list[i].run()
}
