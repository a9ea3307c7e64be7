package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"firstlight.dev/firstlight/assets/mountinfo"
	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// SiteName is the document's name on the SITE partition.
const SiteName = "site.yaml"

// BakedSite is the document that was given when the stick was built.
const BakedSite = "/usr/share/firstlight/site.yaml"

// ErrNoSite is of a stick whose SITE is not mounted. Without it there seems to be no document, or that of the image: a
// site that asks for less than its owner does.
var ErrNoSite = errors.New("the stick's SITE, where site.yaml is, ")

// siteError is an ErrNoSite with what is the matter and what to do.
type siteError string

func (e siteError) Error() string        { return ErrNoSite.Error() + string(e) }
func (e siteError) Is(target error) bool { return target == ErrNoSite }

// CheckSite returns an ErrNoSite if SITE was not mounted when this system started from its stick, or is not mounted any
// more. root is "" or where a test's files are.
func CheckSite(root string) error {
	record, err := stick.Load[stick.StorageInfo](filepath.Join("/", root, stick.StorageInfoFile))
	switch {
	case errors.Is(err, os.ErrNotExist):
		if _, err := os.Stat(filepath.Join("/", root, stick.BootInfoFile)); err != nil {
			return nil // not started from a stick
		}
	case err != nil:
		return err
	case record.Site:
		isMounted, err := mountinfo.IsMounted(filepath.Join("/", root, "proc/self/mountinfo"), stick.SiteDir)
		if err != nil || isMounted {
			return err
		}
		return siteError("is not mounted any more; restart this machine")
	}

	return siteError("was not mounted when this machine started; restart, and if that does not help, write SITE again: " +
		"firstlight flash --site")
}

// SiteDone holds when the site was read since the daemon started or was last told to.
func (h *Host) SiteDone(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.site == nil || h.stale {
		return errors.New("not read yet")
	}

	return nil
}

// SiteDo reads the SITE partition's document or, if it has none, the one baked in. No
// document at all is a valid site; a wrong one is permanent, with every mistake named. What only a new document may not
// have is a note: a version that refuses more starts with the site that the one before had. Where SITE was not mounted,
// nobody knows whether there is one.
func (h *Host) SiteDo(_ context.Context, _ bringup.Report) error {
	s, notes, from, text, err := h.readSite()
	if err != nil {
		return err
	}
	h.setNote("site", describeAccepted(notes))

	if h.OnSite != nil {
		h.OnSite(s.WithDefaults())
	}

	h.mu.Lock()
	h.site, h.text, h.stale = s, text, false
	h.mu.Unlock()
	h.Log.Info("site read", "path", from, "bytes", len(text), "nodes", len(s.Nodes), "clusters", len(s.Clusters))
	return nil
}

// readSite reads the document that holds now: where it is, and its text.
func (h *Host) readSite() (s *site.Site, notes site.Problems, from string, text []byte, err error) {
	from = "none"
	if err := CheckSite(h.Root); err != nil {
		return nil, nil, from, nil, err
	}

	for _, path := range []string{filepath.Join(stick.SiteDir, SiteName), BakedSite} {
		b, err := readLimited(h.path(path), site.MaxSize+1)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, nil, from, nil, err
		}

		text, from = b, path
		break
	}

	s, notes, problems := site.Accept(SiteName, text)
	if err := problems.Err(); err != nil {
		return nil, nil, from, nil, bringup.Permanent(err)
	}

	return s, notes, from, text, nil
}

// describeAccepted is what people should know of what a site has that a new one may not; "" if it has nothing of that.
func describeAccepted(notes site.Problems) string {
	if len(notes) == 0 {
		return ""
	}
	rest := ""
	if n := len(notes) - 1; n > 0 {
		rest = fmt.Sprintf(" (and %d more)", n)
	}
	return fmt.Sprintf("The site is in use as it is, and has what would be refused in a new one: %s%s. firstlight site validate "+
		"names all.", notes[0], rest)
}

func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read site: %w", err)
	}
	defer f.Close()

	b, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, fmt.Errorf("read site %s: %w", path, err)
	}

	return b, nil
}
