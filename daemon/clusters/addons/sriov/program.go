package sriov

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// IsPlugin reports whether a program was called by a path as the runtime calls the plugin.
func IsPlugin(path string) bool { return filepath.Base(path) == Name }

// RunPlugin answers one call and ends the process if that fails, as the CNI specification wants it.
func RunPlugin(ctx context.Context) {
	p := &Plugin{Dirs: NodeDirs("/")}
	with := func(do func(context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(call *skel.CmdArgs) (err error) {
			if p.Kernel, err = NewKernel("/sys"); err != nil {
				return err
			}
			return do(ctx, call)
		}
	}
	skel.PluginMainFuncs(skel.CNIFuncs{
		Add: with(func(ctx context.Context, call *skel.CmdArgs) error {
			result, err := p.Add(ctx, call)
			if err != nil {
				return err
			}
			var conf struct {
				CNIVersion string `json:"cniVersion"`
			}
			if err := json.Unmarshal(call.StdinData, &conf); err != nil {
				return fmt.Errorf("read the version: %w", err)
			}
			return types.PrintResult(result, conf.CNIVersion)
		}),
		Del:    with(p.Del),
		Check:  with(p.Check),
		GC:     with(p.GC),
		Status: with(p.Status),
	}, version.All, "firstlight's CNI plugin, compatible with SR-IOV CNI")
}
