package installer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"firstlight.dev/firstlight/daemon/engine/remote"
)

// file is a text that must be somewhere on a node, as it is.
type file struct {
	path string
	mode fs.FileMode
	data []byte
}

// digestOf is of what the files hold, in their order.
func digestOf(files ...file) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s %d\n", f.path, len(f.data))
		h.Write(f.data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// differingFiles returns those of the files that the node does not have as they should be.
func (n *node) differingFiles(ctx context.Context, files []file) ([]file, error) {
	args := []string{"--"}
	for _, f := range files {
		args = append(args, f.path)
	}

	out, err := n.shell.Run(ctx, nil, "sha256sum", args...)
	if err != nil && remote.ExitCode(err) != 1 { // 1: some are not there
		return nil, err
	}

	return filterDiffering(files, parseSums(out)), nil
}

// parseSums reads what sha256sum printed: path to digest.
func parseSums(out string) map[string]string {
	sums := map[string]string{}
	for line := range strings.Lines(out) {
		if sum, path, ok := strings.Cut(strings.TrimRight(line, "\n"), "  "); ok {
			sums[path] = sum
		}
	}
	return sums
}

func filterDiffering(files []file, sums map[string]string) (all []file) {
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		if sums[f.path] != hex.EncodeToString(sum[:]) {
			all = append(all, f)
		}
	}
	return all
}

// checkFiles is nil if the node has the files as they are, else it names the first that it has not.
func (n *node) checkFiles(ctx context.Context, files []file) error {
	other, err := n.differingFiles(ctx, files)
	if err != nil {
		return err
	}
	if len(other) > 0 {
		return fmt.Errorf("%s is not as wanted", other[0].path)
	}

	return nil
}

// write replaces a file as a whole: written beside it, on the disk, then renamed. Folders are for everybody, as
// apt reads its key as another user; what is secret in them says so itself.
const write = `
dir=$(dirname "$1")
(umask 022; mkdir -p "$dir")
cat >"$1.new"
chmod "$2" "$1.new"
sync "$1.new"
mv "$1.new" "$1"
sync "$dir"
`

// put writes those of the files that differ.
func (n *node) put(ctx context.Context, files []file) error {
	other, err := n.differingFiles(ctx, files)
	if err != nil {
		return err
	}

	for _, f := range other {
		_, err := n.shell.Run(
			ctx, strings.NewReader(string(f.data)), "sh", "-euc", "umask 077\n"+write, "sh", f.path,
			fmt.Sprintf("%o", f.mode),
		)
		if err != nil {
			return fmt.Errorf("write %s: %w", f.path, err)
		}
	}

	return nil
}

// unit is a service of systemd and the files that it reads only when it starts.
type unit struct {
	name  string
	files []file
}

// inEffect is where it is written, until the next boot, from which files a unit was started.
func (u unit) inEffect() string { return "/run/firstlight/" + u.name }

// checkRunning is nil if a unit runs, started from the files as they are.
func (n *node) checkRunning(ctx context.Context, u unit) error {
	if err := n.checkFiles(ctx, u.files); err != nil {
		return err
	}

	out, err := n.shell.RunScript(
		ctx, `systemctl is-active "$1" || true; cat "$2" 2>/dev/null || true`, u.name, u.inEffect(),
	)
	if err != nil {
		return err
	}

	state, started, _ := strings.Cut(out, "\n")
	switch {
	case state != "active":
		return fmt.Errorf("%s is %s", u.name, state)
	case strings.TrimSpace(started) != digestOf(u.files...):
		return fmt.Errorf("%s runs from another configuration", u.name)
	}

	return nil
}

// start makes a unit run from its files, and at every boot.
func (n *node) start(ctx context.Context, u unit) error {
	if err := n.put(ctx, u.files); err != nil {
		return err
	}
	_, err := n.runLocked(ctx, `
systemctl enable --quiet "$1" # reads all units again, as daemon-reload does
systemctl restart "$1"
mkdir -p /run/firstlight
echo "$3" >"$2"
`, u.name, u.inEffect(), digestOf(u.files...))
	return err
}

// runLocked runs a script that changes the node. The installer may be killed and started again while a
// command of its former life still runs there: the lock lets that end first.
func (n *node) runLocked(ctx context.Context, text string, args ...string) (string, error) {
	out, err := n.shell.Run(ctx, nil, "flock", append([]string{"--conflict-exit-code", "99", "--timeout", "900", "/run/firstlight.lock", "sh", "-euc", text, "sh"}, args...)...)
	if remote.ExitCode(err) == 99 {
		return "", errors.New("a command of an earlier run is still at work there")
	}
	return out, err
}
