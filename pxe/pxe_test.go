package pxe_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
)

// TestSecretIsNeverPrinted by any of the ways a program prints.
func TestSecretIsNeverPrinted(t *testing.T) {
	boot := pxe.Boot{Token: "hush-hush"}
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "boot", boot, "token", boot.Token)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "boot", boot, "token", boot.Token)
	fmt.Fprintf(&out, "%v %+v %#v %s %q %v", boot, boot, boot, boot.Token, boot.Token, &boot)
	require.NoError(t, json.NewEncoder(&out).Encode(boot))
	assert.NotContains(t, out.String(), "hush")
	assert.Equal(t, "hush-hush", boot.Token.Reveal())
}
