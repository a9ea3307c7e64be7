package daemon

import "firstlight.dev/firstlight/daemon/uploads/serving"

// authorityNames are the DNS names that the appliance's authority may sign for, with those below them: names that
// programs on the appliance and in its pods use, and the appliance's own. Whoever trusts the authority in a browser
// trusts it for no name of the internet. Addresses are not held to anything: networks change
// (docs/decisions/0044).
func authorityNames(hostname string) []string {
	names := []string{
		"localhost", "svc", "cluster.local", serving.ServiceName, serving.StoreServiceName, serving.ServiceNamespace,
	}
	if hostname != "" {
		names = append(names, hostname)
	}
	return names
}
