package publish

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/signature"
)

// signatures are the texts of the signatures among binary images, in the order of their owners and names. A signature says
// which content it is of, so it counts for an image whatever the two are called, and whichever came first. Who made it
// is the daemon's to check: it knows the keys.
func (f Folder) signatures(records []artifact.Metadata) (texts []string, err error) {
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b artifact.Metadata) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.ClusterName, b.ClusterName), cmp.Compare(a.ImageName, b.ImageName))
	})

	var failed []error
	count := map[string]int{}
	for _, r := range records {
		if !r.Complete || !strings.HasSuffix(r.ImageName, signature.Suffix) || r.ImageLength > signature.MaxBytes ||
			count[r.Owner] == artifact.MaxSignatures {
			continue
		}

		k := artifact.Key{Collection: artifact.Binary, Owner: r.Owner, Cluster: r.ClusterName, Name: r.ImageName}
		text, err := os.ReadFile(f.ObjectPath(k))
		if err != nil {
			failed = append(failed, fmt.Errorf("publish %s: %w", k, err))
			continue
		}
		if s, err := signature.Parse(text); err == nil {
			texts = append(texts, s.Text())
			count[r.Owner]++
		}
	}
	return texts, errors.Join(failed...)
}
