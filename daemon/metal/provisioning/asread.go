package provisioning

import (
	"errors"
	"fmt"

	"firstlight.dev/firstlight/assets/status"
)

// ErrNotAsRead is a confirmation of something that is not any more as it was read.
var ErrNotAsRead = errors.New("read it again")

// otherHost is said where an object was deleted and created again under its name.
const otherHost = "of another BareMetalHost than the one that has this name now"

// checkAsRead compares the word that confirms something with the word of what it is about now. others say, for each part
// of the word, what the confirmation is of if that part is another one. The error is for people.
func checkAsRead(typed, now string, others ...string) error {
	differs, isWord := status.CompareWords(typed, now)
	switch {
	case !isWord:
		return fmt.Errorf("%q is no word that confirms it; without --confirm the word is printed: %w", typed, ErrNotAsRead)
	case differs >= 0:
		return fmt.Errorf("the confirmation is %s; %w", others[differs], ErrNotAsRead)
	}
	return nil
}
