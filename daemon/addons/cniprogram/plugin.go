package cniprogram

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// Plugin is what a container runtime may ask of a CNI plugin (CNI specification 1.1.0, section 2).
type Plugin interface {
	Add(ctx context.Context, call *skel.CmdArgs) (types.Result, error)
	Del(ctx context.Context, call *skel.CmdArgs) error
	Check(ctx context.Context, call *skel.CmdArgs) error
	GC(ctx context.Context, call *skel.CmdArgs) error
	Status(ctx context.Context, call *skel.CmdArgs) error
}

// Answer answers the one call that this process is for, and ends it if that fails, as the specification wants it. About
// is a line for whoever calls the program by hand.
func Answer(ctx context.Context, p Plugin, about string) {
	with := func(do func(context.Context, *skel.CmdArgs) error) func(*skel.CmdArgs) error {
		return func(call *skel.CmdArgs) error { return do(ctx, call) }
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
	}, version.All, about)
}
