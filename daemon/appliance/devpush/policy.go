package devpush

import (
	"fmt"
	"strings"
)

// Policy is what the appliance's owner has said of programs that nobody signed.
type Policy struct {
	Signed  bool  // updates.keys of the site: only signed versions are taken
	Boot    bool  // firmware with the owner's keys checks what starts
	Unknown error // why one of these is not known
}

// Refusal is why nothing may be pushed into the appliance; "" if it may.
func (p Policy) Refusal() string {
	var all []string
	if p.Signed {
		all = append(all, "its site.yaml has updates.keys, so that it takes signed versions alone")
	}
	if p.Boot {
		all = append(all, "its firmware starts nothing but what its owner has signed")
	}
	if p.Unknown != nil {
		all = append(all, fmt.Sprintf("it is not known what its owner allows: %v", p.Unknown))
	}
	return strings.Join(all, ", and ")
}
