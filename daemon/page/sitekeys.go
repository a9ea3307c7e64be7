package page

import (
	"regexp"
	"strings"
	"sync"

	"firstlight.dev/firstlight/assets/site"
)

// siteKey is what the editor says of one key of a site document.
type siteKey struct {
	site.Field
	ID string // of its element: key-nodes.bmc.address
}

// keySection is a key at the left margin of a site document, and all keys below it.
type keySection struct {
	Name   string
	Keys   []siteKey // its own first
	IsOpen bool      // a mistake is about one of its keys
}

// problemView is a mistake in a document, with the key that it is about.
type problemView struct {
	Text string   // site.Problem in a line
	Key  *siteKey // nil: none is known
}

// siteKeys are all keys by their IDs.
var siteKeys = sync.OnceValue(func() map[string]siteKey {
	all := map[string]siteKey{}
	for _, f := range site.Fields() {
		all[siteKeyID(f.Path)] = siteKey{f, siteKeyID(f.Path)}
	}
	return all
})

// newKeySections lists all keys of a site document. What a mistake is about is open.
func newKeySections(problems []problemView) (all []keySection) {
	open := map[string]bool{}
	for _, p := range problems {
		if p.Key != nil {
			name, _, _ := strings.Cut(p.Key.ID, ".")
			open[name] = true
		}
	}

	for _, f := range site.Fields() {
		k := siteKeys()[siteKeyID(f.Path)]
		if !strings.Contains(f.Path, ".") {
			all = append(all, keySection{Name: f.Path, IsOpen: open[k.ID]})
		}
		section := &all[len(all)-1]
		section.Keys = append(section.Keys, k)
	}
	return all
}

func newProblemViews(problems site.Problems) (all []problemView) {
	for _, p := range problems {
		all = append(all, problemView{p.String(), findKey(p.Path)})
	}
	return all
}

// findKey is the key to which a path leads, or the nearest one above it: nodes for nodes[0].colour, which is unknown.
func findKey(path string) *siteKey {
	for id := siteKeyID(path); ; {
		if k, ok := siteKeys()[id]; ok {
			return &k
		}
		at := strings.LastIndex(id, ".")
		if at < 0 {
			return nil
		}
		id = id[:at]
	}
}

// reIndex is the number of an item, in a path.
var reIndex = regexp.MustCompile(`\[\d*\]`)

// siteKeyID is the ID of the key at a path, in whichever items of lists that is. site.js makes the same.
func siteKeyID(path string) string { return "key-" + reIndex.ReplaceAllString(path, "") }
