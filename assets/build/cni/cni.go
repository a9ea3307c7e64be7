// Package cni pins the CNI plugins that the appliance and its clusters use: bridge, host-local, loopback,
// portmap and ptp of github.com/containernetworking/plugins. They are commands, so go.mod names them as
// tools and the recipe builds them by their import paths; there is no code of ours.
package cni
