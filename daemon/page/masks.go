package page

import (
	"sync"

	"firstlight.dev/firstlight/assets/site"
	"firstlight.dev/firstlight/daemon/appliance/sitedocument"
)

// maxMasks is how many documents are remembered without their secrets: those of the history, and some more.
const maxMasks = 32

// masks are documents with their secrets hidden, by the digests of what they were made of: that takes the most of the
// time of a page that shows one, and the same document never shows anything else.
type masks struct {
	mu   sync.Mutex
	made map[string]masked
}

type masked struct {
	text []byte // not to be changed
	err  error
}

// mask is site.Mask.
func (m *masks) mask(text []byte) ([]byte, error) {
	key := sitedocument.Digest(text)
	m.mu.Lock()
	known, ok := m.made[key]
	m.mu.Unlock()
	if ok {
		return known.text, known.err
	}

	var one masked
	one.text, one.err = site.Mask(text)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made == nil || len(m.made) >= maxMasks {
		m.made = map[string]masked{} // all of them: what is shown again is made again once
	}
	m.made[key] = one
	return one.text, one.err
}
