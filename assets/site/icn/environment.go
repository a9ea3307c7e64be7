package icn

import (
	"slices"
	"strings"
)

// environmentNames are the variables of the caller's environment that have a place in a site. ICN's scripts read
// user_config.sh with `source`: what the file assigns counts, ${NAME:-default} in it takes the environment first, and
// what it does not mention is the environment's.
var environmentNames = []string{
	"IRONIC_INTERFACE", "IRONIC_PROVISIONING_INTERFACE_IP", "DHCP_RANGE", "IRONIC_ENABLE_DHCP",
	"IRONIC_IPMI_INTERFACE", "IRONIC_IPMI_INTERFACE_IP", "PROVIDER_NETWORK_GATEWAY", "PROVIDER_NETWORK_DNS",
	"POD_NETWORK_CIDR",
	"COMPUTE_NODE_NAME", "COMPUTE_IPMI_ADDRESS", "COMPUTE_IPMI_USER", "COMPUTE_IPMI_PASSWORD", "COMPUTE_NODE_PASSWORD",
}

// environmentFile is the environment's name in notes.
const environmentFile = "environment"

// parseEnvironment reads NAME=VALUE lines as os.Environ has them.
func parseEnvironment(environ []string) map[string]string {
	all := map[string]string{}
	for _, line := range environ {
		if name, value, ok := strings.Cut(line, "="); ok {
			all[name] = value
		}
	}
	return all
}

// addEnvironment appends what the file leaves to the environment.
func (im *importer) addEnvironment(variables []variable) []variable {
	for _, name := range environmentNames {
		value := im.environment[name]
		if value == "" || slices.ContainsFunc(variables, func(v variable) bool { return v.name == name }) {
			continue
		}

		variables = append(variables, variable{name: name, value: value})
		im.addNote(environmentFile, 0, name, "taken from the environment, as ICN's scripts did; unset it if it is not meant")
	}
	return variables
}
