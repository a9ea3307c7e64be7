package sriov

import (
	"context"

	"firstlight.dev/firstlight/daemon/addons/cniprogram"
)

// NewKernel is that of this machine.
func NewKernel() Kernel { return linux{"/sys"} }

// RunPlugin answers one call of the runtime.
func RunPlugin(ctx context.Context) {
	p := &Plugin{Dirs: NodeDirs("/"), Kernel: NewKernel()}
	cniprogram.Answer(ctx, p, "firstlight's CNI plugin, compatible with SR-IOV CNI")
}
