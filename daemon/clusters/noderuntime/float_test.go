package noderuntime

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A server that refuses is gone after three times; one that says nothing may be slow.
func TestServerRecord(t *testing.T) {
	refused := &url.Error{Op: "Get", Err: syscall.ECONNREFUSED}
	silent := &url.Error{Op: "Get", Err: context.DeadlineExceeded}
	failing := errors.New("500 Internal Server Error")
	for _, c := range []struct {
		name    string
		answers []error // one every five seconds, after the first
		want    bool
	}{
		{"it answers", []error{nil, nil}, true},
		{"it is refused twice", []error{refused, refused}, true},
		{"it is refused three times", []error{refused, refused, refused}, false},
		{"it fails three times", []error{failing, refused, failing}, false},
		{"it answers again", []error{refused, refused, refused, nil}, true},
		{"it is refused three times, not in a row", []error{refused, refused, nil, refused}, true},
		{"it says nothing for half a minute", []error{silent, silent, silent, silent, silent, silent}, true},
		{"it says nothing for more than a minute", slices.Repeat([]error{silent}, 13), false},
		{"it says nothing, and then it answers", append(slices.Repeat([]error{silent}, 13), nil), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := time.Now()
			s := &serverRecord{failed: failuresBefore}
			assert.False(t, s.serves(), "before its first answer")
			s.note(nil, now)
			for _, err := range c.answers {
				now = now.Add(5 * time.Second)
				s.note(err, now)
			}
			assert.Equal(t, c.want, s.serves())
		})
	}

	never := &serverRecord{failed: failuresBefore}
	never.note(silent, time.Now())
	assert.False(t, never.serves(), "it never answered")
	assert.Less(t, never.pause(), advertInterval, "all wait for its first answer")
	never.note(nil, time.Now())
	never.note(refused, time.Now())
	assert.Equal(t, advertInterval, never.pause())
}
