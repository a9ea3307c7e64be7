// Package carrier says what carries an appliance: a stick, a machine with a system, or a Kubernetes that is there. The
// appliance is the same on each; the words for people that are not are values here.
package carrier

import (
	"os"
	"path/filepath"
	"strings"

	"firstlight.dev/firstlight/assets/guest"
)

// What systemd of the appliance is told of its container ($container of https://systemd.io/CONTAINER_INTERFACE), by what
// starts it.
const (
	Installation = "firstlight"     // firstlight install
	Try          = "firstlight-try" // firstlight try
)

// containerFile is where systemd keeps what it was told; absent where it runs on a machine of its own.
const containerFile = "/run/systemd/container"

// Carrier is what carries an appliance, in words that continue a sentence.
type Carrier struct {
	Restart string // what a person does to start the appliance again, with what it keeps
	Site    string // where the folder of site.yaml is
	Blank   string // where a blank one comes from
}

// Read is the carrier of the system whose root is given; "" is this one's.
func Read(root string) Carrier {
	if os.Getenv(guest.Variable) != "" {
		return Carrier{
			Restart: "restart the pod: kubectl -n " + guest.Namespace + " rollout restart deploy/" + guest.Name,
			Site:    "in the folder of firstlight guest manifests and apply that (kubectl apply -k)",
			Blank:   "a stick, or firstlight install",
		}
	}

	name, _ := os.ReadFile(filepath.Join("/", root, containerFile)) // where there is none it is a stick
	switch strings.TrimSpace(string(name)) {
	case Installation:
		return Carrier{
			Restart: "restart the appliance: systemctl restart firstlight, on the machine that has it",
			Site:    "in /var/lib/firstlight/site of the machine that has the appliance",
			Blank:   "firstlight uninstall, then firstlight install",
		}
	case Try:
		return Carrier{
			Restart: "restart the appliance: firstlight try shell systemctl reboot",
			Site:    "in the folder site of the rack",
			Blank:   "firstlight try down --remove, then firstlight try",
		}
	}
	return Carrier{
		Restart: "restart this machine: systemctl reboot",
		Site:    "on the stick's SITE partition",
		Blank:   "firstlight flash, with --forget onto this stick",
	}
}
