package metal3provider

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Node is looked for often at first, and at last as seldom as everything else.
func TestNodePause(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{
		-time.Second:     soonest, // a clock was set
		0:                soonest,
		20 * time.Second: soonest,
		time.Minute:      3 * time.Second,
		5 * time.Minute:  15 * time.Second,
		time.Hour:        lookAgain,
	} {
		now := time.Now()
		h := &host{}
		h.Status.OperationHistory.Provision.End = metav1.NewTime(now.Add(-after))
		assert.Equal(t, want, nodePause(h, now), "%s after it was provisioned", after)
	}
	assert.Equal(t, lookAgain, nodePause(&host{}, time.Now()), "nobody knows when")
}
