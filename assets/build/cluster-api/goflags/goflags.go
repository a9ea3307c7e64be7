// Package goflags remembers the standard library's flags. Packages register theirs at their start; clusterctl's puts an
// empty set of flags in the place of all that were registered before, and the managers then have no --kubeconfig.
package goflags

import "flag"

// Registered are the flags as every package but clusterctl's registers them. This package imports nothing but flag and
// its path sorts before theirs, so it is initialised first ("Package initialization", The Go Programming Language
// Specification).
var Registered = flag.CommandLine
