package metal3

import (
	"errors"
	"fmt"
)

// Progress is how far the hand-over of one node is.
type Progress struct {
	Node string
	Decision
	Err error // of the last try
}

// Block is why a node is not changed until a person decides or something is repaired. The zero value blocks nothing.
type Block struct {
	Reason   Reason
	Sentence string
}

// Blocks returns the nodes that are blocked, by name: what is invalid in the site, and what the last round found.
func Blocks(invalid map[string]error, all []Progress) map[string]Block {
	blocks := map[string]Block{}
	for name, err := range invalid {
		blocks[name] = Block{ReasonInvalid, err.Error()}
	}

	for _, p := range all {
		switch {
		case p.Err != nil:
			blocks[p.Node] = Block{ReasonFailed, p.Err.Error()}
		case p.Reason != "":
			blocks[p.Node] = Block{p.Reason, p.Sentence}
		}
	}

	return blocks
}

// JoinErrors joins what went wrong, one sentence per node.
func JoinErrors(all []Progress) error {
	var errs []error
	for _, p := range all {
		if p.Err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", p.Node, p.Err))
		}
	}
	return errors.Join(errs...)
}
