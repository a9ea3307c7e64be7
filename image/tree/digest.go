package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// DirDigest digests what Overlay would copy of a directory: names, contents, links and
// whether files are executable.
func DirDigest(dir string) (string, error) {
	h := sha256.New()
	err := filepathWalk(dir, func(rel string, info fs.FileInfo) error {
		host, mode := path.Join(dir, rel), info.Mode()
		switch {
		case mode.IsDir():
			fmt.Fprintf(h, "dir %q\n", rel)
		case mode&fs.ModeSymlink != 0:
			target, err := os.Readlink(host)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "link %q %q\n", rel, target)
		default:
			fmt.Fprintf(h, "file %q %v %d\n", rel, mode&0o100 != 0, info.Size())
			f, err := os.Open(host)
			if err != nil {
				return err
			}
			defer f.Close()

			if _, err := io.Copy(h, f); err != nil {
				return fmt.Errorf("digest overlay %s: %w", host, err)
			}
		}
		return nil
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
