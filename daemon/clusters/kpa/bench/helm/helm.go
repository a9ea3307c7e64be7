// Package helm pins helm, beside which the operator of Components is measured. It is a command, so go.mod names it as a
// tool.
package helm
