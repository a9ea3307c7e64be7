package verify

import (
	"context"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/metal/verify/bmc"
)

// checkDrive says why a BMC has no drive for a disc, asked until it has one; "": it has.
func (e *Engine) checkDrive(ctx context.Context, st *state, b site.BMC) (problem string) {
	e.mu.Lock()
	known := st.hasDrive
	e.mu.Unlock()
	if known {
		return ""
	}

	ask := e.Drive
	if ask == nil {
		ask = bmc.Client{Pins: e.Pins}.CheckDrive
	}

	if err := ask(ctx, b); err != nil {
		return err.Error()
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	st.hasDrive = true
	return ""
}
