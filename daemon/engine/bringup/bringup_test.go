package bringup

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBeginActsOnlyWhereAnActIsNeeded(t *testing.T) {
	failure := errors.New("no room")
	for name, c := range map[string]struct {
		done error
		do   error
		acts bool
	}{
		"it holds":             {acts: false},
		"it comes by itself":   {done: Wait("the pod to be ready"), acts: false},
		"a person must act":    {done: Permanent(errors.New("the site is wrong")), acts: false},
		"it is not there":      {done: errors.New("no such object"), acts: true},
		"it cannot be started": {done: errors.New("no such object"), do: failure, acts: true},
	} {
		t.Run(name, func(t *testing.T) {
			acted := false
			s := Stage{
				Done: func(context.Context) error { return c.done },
				Do:   func(context.Context, Report) error { acted = true; return c.do },
			}
			assert.Equal(t, c.do, Begin(t.Context(), s, func(string) {}))
			assert.Equal(t, c.acts, acted)
		})
	}
	assert.NoError(t, Begin(t.Context(), Stage{Done: func(context.Context) error { return failure }}, nil), "it only waits")
}
