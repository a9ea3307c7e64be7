package multus

import (
	"context"
	"os"
	"path/filepath"

	"firstlight.dev/firstlight/daemon/addons/cniprogram"
)

// RunPlugin answers one call of the runtime.
func RunPlugin(ctx context.Context) {
	cniprogram.Answer(ctx, &Plugin{
		Dirs:     NodeDirs("/"),
		Path:     filepath.SplitList(os.Getenv("CNI_PATH")),
		Open:     openAPI,
		SetRoute: setDefaultRoute,
		Log:      os.Stderr,
	}, "firstlight's CNI plugin, compatible with Multus")
}
