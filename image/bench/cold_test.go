package bench_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image"
	"firstlight.dev/firstlight/image/recipe"
)

// measureCold builds in a clone with an empty cache and nothing compiled; sources of Go modules
// are there. Its peer is mmdebstrap alone, which installs the appliance's packages from the mirror.
func measureCold(ctx context.Context, top, dir string) ([]bench.Row, error) {
	clone := filepath.Join(dir, "clone")
	if _, err := runTimed(ctx, top, nil, "git", "clone", "--quiet", ".", clone); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	t, err := runTimed(ctx, clone, []string{"FIRSTLIGHT_CACHE=" + filepath.Join(dir, "cache"), "GOCACHE=" + filepath.Join(dir, "gocache")}, "make", "usb-image")
	if err != nil {
		return nil, err
	}
	r, err := recipe.ReadFile(filepath.Join(top, image.RecipePath))
	if err != nil {
		return nil, err
	}
	root := r.Root(r.Stick.Root)
	ours := 0.0
	for _, m := range built.FindAllStringSubmatch(t.output, -1) {
		if m[1] == "packages "+root.Name {
			if ours, err = strconv.ParseFloat(m[2], 64); err != nil {
				return nil, err
			}
		}
	}
	if ours == 0 {
		return nil, fmt.Errorf("measure packages of %s: the build did not say how long they took", root.Name)
	}
	peer, err := runTimed(ctx, dir, nil, "mmdebstrap", "--variant=essential", "--include="+strings.Join(root.Packages, ","), `--aptopt=APT::Install-Recommends "false"`, r.Debian.Suite, filepath.Join(dir, "peer.tar"))
	if err != nil {
		return nil, err
	}
	note := "one run; load of the machine at the end " + bench.LoadAverage()
	return []bench.Row{
		{Name: "image/cold", Unit: "s", Ours: t.wall, Note: "make usb-image, empty cache, nothing compiled; " + note},
		{Name: "image/cold-cpu", Unit: "s", Ours: t.cpu, Note: "the same in processor seconds, without those of what was not waited for"},
		bench.Row{Name: "image/cold-appliance-packages", Unit: "s", Ours: ours, Note: "fetched by digest, installed, compared with the lock; the peer asks apt for the newest and fetches as it goes; " + note}.Less("mmdebstrap", peer.wall, 1),
	}, nil
}
