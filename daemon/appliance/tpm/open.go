package tpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxtpm"
)

// driverWait is how long the driver of a TPM that the firmware announces may take.
const driverWait = 30 * time.Second

// Open opens the TPM 2.0 of this machine. A TPM that the firmware announces is waited for: without that, a driver
// that is slow would leave DATA unsealed.
func Open(ctx context.Context) (transport.TPMCloser, error) {
	_, err := os.Stat("/sys/firmware/acpi/tables/TPM2") // TCG ACPI Specification
	announced := err == nil
	deadline := time.Now().Add(driverWait)
	for {
		t, err := linuxtpm.Open("/dev/tpmrm0") // through the kernel's resource manager; of TPM 2.0 alone
		switch {
		case err == nil:
			return t, nil
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		case !announced:
			return nil, describeNoTPM()
		case time.Now().After(deadline):
			return nil, fmt.Errorf("the firmware announces a TPM 2.0, and no driver took it in %s", driverWait)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func describeNoTPM() error {
	if version, err := os.ReadFile("/sys/class/tpm/tpm0/tpm_version_major"); err == nil {
		return fmt.Errorf("its TPM is of version %s, not 2", bytes.TrimSpace(version))
	}
	return errors.New("the firmware announces no TPM 2.0")
}
