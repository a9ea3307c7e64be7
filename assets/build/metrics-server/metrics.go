// Package metrics pins metrics-server, which a cluster may have as a plugin. It is a command, so go.mod
// names it as a tool and the recipe builds it by its import path; there is no code of ours.
package metrics
