package debian

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/image/cache"
)

// MissingPackageError says that the mirror no longer has a locked package.
type MissingPackageError struct {
	Package Package
	URL     string
}

func (e *MissingPackageError) Error() string {
	return fmt.Sprintf("fetch %s %s: %s is no longer there; run `firstlight lock` for its successor, or give a mirror that keeps it with --mirror", e.Package.Name, e.Package.Version, e.URL)
}

// Fetch brings packages into the cache, several at a time, and returns their files by
// SHA256. Only bytes with the locked digest get in. progress is told of every package.
func Fetch(
	ctx context.Context,
	store cache.Store,
	mirror func() (Mirror, error),
	packages []Package,
	progress func(done, all int),
) (map[string]string, error) {
	paths := map[string]string{}
	var missing []Package
	for _, p := range packages {
		if item, ok := store.Lookup("deb", p.SHA256); ok {
			paths[p.SHA256] = item.Path
		} else {
			missing = append(missing, p)
		}
	}

	if len(missing) == 0 {
		return paths, nil
	}

	from, err := mirror()
	if err != nil {
		return nil, err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(6)
	results := make(chan cache.Item, len(missing))
	for _, p := range missing {
		group.Go(func() error {
			item, err := store.Do(
				"deb", p.SHA256, func(path string) error { return download(ctx, from.URL(p), path, p) },
			)
			if err == nil {
				results <- item
				progress(len(paths)+len(results), len(packages))
			}
			return err
		})
	}

	if err := group.Wait(); err != nil {
		return nil, err
	}

	close(results)
	for item := range results {
		paths[item.Digest] = item.Path
	}

	return paths, nil
}

func download(ctx context.Context, url, path string, p Package) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", p.Name, err)
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", p.Name, err)
	}
	defer response.Body.Close()

	switch {
	case response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusGone:
		return &MissingPackageError{Package: p, URL: url}
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("fetch %s from %s: %s", p.Name, url, response.Status)
	}

	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", p.Name, err)
	}

	digest := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, digest), response.Body)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("fetch %s from %s: %w", p.Name, url, err)
	}
	if got := hex.EncodeToString(digest.Sum(nil)); got != p.SHA256 {
		return fmt.Errorf(
			"fetch %s from %s: sha256 is %s and not %s as locked; try another mirror", p.Name, url, got, p.SHA256,
		)
	}

	return nil
}
