package multus

import (
	"context"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// IsPlugin reports whether a program was called by a path as the runtime calls the plugin.
func IsPlugin(path string) bool { return filepath.Base(path) == Name }

// RunPlugin answers one call of the runtime and ends the process if that fails, as the CNI specification wants it.
func RunPlugin(ctx context.Context) {
	p := &Plugin{
		Dirs:     NodeDirs("/"),
		Path:     filepath.SplitList(os.Getenv("CNI_PATH")),
		Open:     openAPI,
		SetRoute: setDefaultRoute,
		Log:      os.Stderr,
	}

	with := func(do func(context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(call *skel.CmdArgs) error { return do(ctx, call) }
	}
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: func(call *skel.CmdArgs) error {
			result, err := p.Add(ctx, call)
			if err != nil {
				return err
			}
			conf, err := ParseConf(call.StdinData)
			if err != nil {
				return err
			}
			return types.PrintResult(result, conf.CNIVersion)
		},
		Del:    with(p.Del),
		Check:  with(p.Check),
		GC:     with(p.GC),
		Status: with(p.Status),
	}, version.All, "firstlight's CNI plugin, compatible with Multus")
}
