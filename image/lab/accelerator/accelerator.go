// Package accelerator decides how QEMU runs the processors of the lab's machines: with KVM where that
// really runs a guest, else under emulation (TCG), which every computer can do. A /dev/kvm that
// is there proves nothing: within a virtual machine it may hang, or be slower than emulation.
package accelerator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Kind is what runs a machine's processors. The zero value is emulation.
type Kind string

const (
	KVM Kind = "kvm" // this computer's own processors, by its kernel
	TCG Kind = "tcg" // emulated
)

// emulated is the processor that is cheap to emulate: without AVX; and AMD's, which Linux knows to be
// safe from Meltdown. On others it changes the page table twice per system call, and an emulator then
// forgets every address that it had translated. Without cmpxchg16b, because QEMU 7.2's crashes Linux 6.12.
const emulated = "Opteron_G3,-cx16,-monitor,+ssse3,+sse4.1,+sse4.2,+aes,+pclmulqdq,+rdrand"

// Args are QEMU's arguments for a machine of this kind. With KVM it has this computer's processor: none of
// the reasons for another one hold there.
func (k Kind) Args() []string {
	if k == KVM {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	return []string{"-accel", "tcg,thread=multi", "-cpu", emulated}
}

// Variable is the environment variable that decides where a caller asks for nothing.
const Variable = "FIRSTLIGHT_ACCEL"

// Choice is a kind, and why it is that one.
type Choice struct {
	Kind Kind   `json:"kind"`
	Why  string `json:"why"`
}

func (c Choice) String() string {
	if c.Kind == KVM {
		return "KVM: " + c.Why
	}
	return "KVM: " + c.Why + "; machines are emulated"
}

// probeTimeout is how long KVM may take to run the trial, which takes it a fifth of a second.
const probeTimeout = 2 * time.Second

// Choose takes what is asked for, here or else in the environment; where neither says anything, KVM
// if it runs the trial.
func Choose(ctx context.Context, asked string) (Choice, error) {
	switch asked = cmp.Or(asked, os.Getenv(Variable)); Kind(asked) {
	case KVM:
		return Choice{KVM, "as asked"}, nil
	case TCG:
		return Choice{TCG, "not asked for"}, nil
	case "":
		return chooseAfterProbe(probeKVM(ctx)), nil
	}
	return Choice{}, fmt.Errorf("accelerator %q is not known; want %s or %s", asked, KVM, TCG)
}

const device = "/dev/kvm"

func probeKVM(ctx context.Context) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err = KVM.run(ctx, 0)
	return err
}

// chooseAfterProbe is the choice after a trial of KVM, which ended so.
func chooseAfterProbe(trial error) Choice {
	switch {
	case trial == nil:
		return Choice{KVM, "machines run on this computer's own processors"}
	case errors.Is(trial, fs.ErrNotExist):
		return Choice{TCG, device + " is not there"}
	case errors.Is(trial, fs.ErrPermission):
		return Choice{TCG, device + " may not be opened; its group may (`ls -l " + device + "`)"}
	case errors.Is(trial, context.DeadlineExceeded):
		return Choice{TCG, fmt.Sprintf("%s runs no guest within %s", device, probeTimeout)}
	}
	return Choice{TCG, fmt.Sprintf("%s runs no guest: %s", device, trial)}
}
