package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAMachineWithoutATPMAttestsNothing and says so in one sentence; a nonce that could come again is refused.
func TestAMachineWithoutATPMAttestsNothing(t *testing.T) {
	for _, line := range []string{"attest", "attest --nonce 00", "attest --nonce zz", "attest --nonce " + strings.Repeat("00", 33)} {
		assert.Equal(t, 2, run(t.Context(), strings.Fields(line)), line)
	}

	for _, path := range []string{"/dev/tpmrm0", "/sys/firmware/acpi/tables/TPM2", "/sys/class/tpm/tpm0"} {
		if _, err := os.Stat(path); err == nil {
			t.Skip("this machine has a TPM")
		}
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, as on the appliance")
	}
	root := newRootCommand()
	root.SetArgs([]string{"attest", "--nonce", strings.Repeat("00", 32)})
	assert.EqualError(t, root.ExecuteContext(t.Context()),
		"no TPM: the firmware announces no TPM 2.0; what this machine booted cannot be proven")
}
