package metal3

import (
	"context"
	"errors"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/inspection"
)

func TestInspectionsAreAskedForOnce(t *testing.T) {
	var answer Contents
	var failure error
	asked := 0
	i := Inspections{Ask: func(_ context.Context, node string) (inspection.Report, error) {
		asked++
		assert.Equal(t, "ironic's", node)
		return inspection.Report{Disks: answer}, failure
	}}
	var h metal3api.BareMetalHost
	h.Status.Provisioning.ID = "ironic's"
	h.Status.OperationHistory.Inspect.End = metav1.NewTime(time.Unix(1000, 0))
	look := func() Contents {
		found, err := i.Contents(t.Context(), &h)
		require.ErrorIs(t, err, failure)
		return found
	}

	failure = errors.New("busy")
	assert.Nil(t, look())
	failure = nil
	assert.Nil(t, look(), "nothing was found out")
	assert.Equal(t, 2, asked, "what is not known is asked for again")

	answer = Contents{"/dev/sda": {Kinds: []string{"gpt"}}}
	assert.Equal(t, answer, look())
	assert.Equal(t, answer, look())
	assert.Equal(t, 3, asked)

	h.Status.OperationHistory.Inspect.End = metav1.NewTime(time.Unix(2000, 0))
	answer = Contents{"/dev/sda": {}}
	assert.Equal(t, answer, look(), "it was inspected again")
	assert.Equal(t, 4, asked)
}

// TestAHostThatIronicDoesNotHaveIsNotAskedFor: it was written by hand, or not registered yet.
func TestAHostThatIronicDoesNotHaveIsNotAskedFor(t *testing.T) {
	all := Inspections{Ask: func(context.Context, string) (inspection.Report, error) {
		t.Error("Ironic was asked for a node without a name")
		return inspection.Report{}, nil
	}}
	found, err := all.Contents(t.Context(), &metal3api.BareMetalHost{})
	assert.NoError(t, err)
	assert.Nil(t, found)
}
