package metal3

import (
	"errors"
	"log/slog"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

// TestHandoverIsTriedAgain: DATA may be full when a key is to be minted, and have room a minute later.
func TestHandoverIsTriedAgain(t *testing.T) {
	scheme, err := Scheme()
	require.NoError(t, err)
	full := errors.Join(errors.New("keep SSH key"), syscall.ENOSPC)
	s := RegistrationStage(func() ([]NodeObjects, error) { return nil, full }, func() (Reconciler, error) {
		return Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).Build(), Log: slog.New(slog.DiscardHandler),
			Backups: Backups{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}}, nil
	})
	report := func(string) {}
	for _, err := range []error{s.Done(t.Context()), s.Do(t.Context(), report)} {
		require.ErrorIs(t, err, syscall.ENOSPC)
		assert.False(t, bringup.IsPermanent(err), "the rest of the plan would wait for a reload")
	}
	full = nil
	require.NoError(t, s.Do(t.Context(), report))
	require.NoError(t, s.Done(t.Context()))
}
