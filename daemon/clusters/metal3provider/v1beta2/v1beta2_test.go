package v1beta2

import (
	"testing"

	"firstlight.dev/firstlight/assets/crd/crdtest"
)

func TestCopiesShareNothing(t *testing.T) { crdtest.CheckCopies(t, GroupVersion, AddToScheme) }
