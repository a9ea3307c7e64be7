package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets"
)

// ReadRevision asks git which commit the files below top are of, and whether they differ from it. Without git, or
// where top is not the top of a repository of its own, that is the zero Revision.
func ReadRevision(ctx context.Context, top string) (assets.Revision, error) {
	if above, err := runGit(ctx, top, "rev-parse", "--show-cdup"); err != nil || above != "" {
		var exit *exec.ExitError
		if err == nil || errors.Is(err, exec.ErrNotFound) || errors.As(err, &exit) {
			return assets.Revision{}, ctx.Err()
		}
		return assets.Revision{}, err
	}

	commit, err := runGit(ctx, top, "log", "-1", "--format=%H %cI")
	if err != nil {
		return assets.Revision{}, err
	}

	tags, err := runGit(ctx, top, "tag", "--points-at", "HEAD")
	if err != nil {
		return assets.Revision{}, err
	}

	changes, err := runGit(ctx, top, "status", "--porcelain")
	if err != nil {
		return assets.Revision{}, err
	}

	return parseRevision(commit, tags, changes)
}

// parseRevision reads what git printed: the commit and its time in ISO 8601, tags and changed files one per line.
func parseRevision(commit, tags, changes string) (assets.Revision, error) {
	hash, at, _ := strings.Cut(commit, " ")
	date, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return assets.Revision{}, fmt.Errorf("read git's commit %q: %w", commit, err)
	}

	return assets.Revision{
		Commit:     hash,
		Time:       date.UTC(),
		IsReleased: slices.Contains(strings.Fields(tags), assets.ReleaseTag),
		IsDirty:    changes != "",
	}, nil
}

// runGit runs git in dir and returns what it printed, without the newline at its end.
func runGit(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf(
			"run git %s in %s: %w: %s", strings.Join(args, " "), dir, err, strings.TrimSpace(said.String()),
		)
	}

	return strings.TrimSuffix(string(out), "\n"), nil
}
