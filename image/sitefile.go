package image

import (
	"fmt"
	"io"
	"os"

	"firstlight.dev/firstlight/assets/site"
)

// siteFile is the site document on the stick's SITE partition.
const siteFile = "site.yaml"

// readSite reads the site document and tells every problem of it, one a line: a wrong one would be
// found out in front of the rack. It is read once, so that what was checked is what the stick gets.
func (b *Builder) readSite() ([]byte, error) {
	if b.Site == "" {
		return nil, nil
	}

	f, err := os.Open(b.Site)
	if err != nil {
		return nil, fmt.Errorf("read site: %w", err)
	}
	defer f.Close()

	document, err := io.ReadAll(io.LimitReader(f, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("read site %s: %w", b.Site, err)
	}
	if _, problems := site.Load(b.Site, document); len(problems) > 0 {
		return nil, fmt.Errorf(
			"check site %s: %d problems, nothing is built:\n%w", b.Site, len(problems), problems.Err(),
		)
	}

	return document, nil
}

// outputMode are the image's permissions: a site document holds the passwords of BMCs, and is written
// for its owner alone by `firstlight site import` as well.
func (b *build) outputMode() os.FileMode {
	if b.Site != "" {
		return 0o600
	}
	return 0o644
}

// samePerm tells whether the image that is there has the permissions of the one to be made: only
// then may that come into being in its file, which somebody might have open.
func (b *build) samePerm() bool {
	info, err := os.Stat(b.Out)
	return err == nil && info.Mode().Perm() == b.outputMode()
}
