package image

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"firstlight.dev/firstlight/image/cache"
)

// The builder's own code decides about bytes as well: what it builds is made anew when
// the packages that do the work change. Tests do not count.
var (
	codeOfPackages  = []string{"image/debian", "image/drivers"}
	codeOfPools     = []string{"image/debian/pool"}
	codeOfTrees     = []string{"image/tree", "image/oci", "assets/layer", "image/roots.go", "image/parts.go", "image/artifacts.go", "image/machine.go"}
	codeOfInitramfs = []string{"image/initramfs"}
	codeOfDisks     = []string{"image/disk", "image/disk/fat", "assets/gpt", "image/disk/squashfs", "image/disk/verity"}
	codeOfRoot      = []string{"image/rootfs.go", "image/disk/root.go", "image/extents", "assets/extent"}
	codeOfStick     = append([]string{"image/media", "image/sbom", "image/build.go", "image/stamp.go", "image/outputs.go", "image/sitefile.go", "image/bill.go", "image/rootfs.go"}, codeOfDisks...)
)

// codeDigest digests Go files: each name is a file or a directory of them.
func (b *Builder) codeDigest(names []string) (string, error) {
	var parts []string
	for _, name := range names {
		files := []string{b.path(name)}
		if !strings.HasSuffix(name, ".go") {
			var err error
			if files, err = filepath.Glob(filepath.Join(b.path(name), "*.go")); err != nil {
				return "", err
			}
		}
		slices.Sort(files)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return "", fmt.Errorf("look at the builder's code: %w", err)
			}
			parts = append(parts, string(text))
		}
	}
	return cache.Key(parts...), nil
}
