package accelerator

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestArgs(t *testing.T) {
	emulation := []string{"-accel", "tcg,thread=multi", "-cpu", emulated}
	for kind, want := range map[Kind][]string{KVM: {"-accel", "kvm", "-cpu", "host"}, TCG: emulation, "": emulation} {
		assert.Equal(t, want, kind.Args(), kind)
	}
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		trial error
		kind  Kind
		want  string
	}{
		{nil, KVM, "KVM: machines run on this computer's own processors"},
		{&fs.PathError{Op: "open", Path: device, Err: fs.ErrNotExist}, TCG, "KVM: /dev/kvm is not there; machines are emulated"},
		{&fs.PathError{Op: "open", Path: device, Err: fs.ErrPermission}, TCG, "KVM: /dev/kvm may not be opened; its group may (`ls -l /dev/kvm`); machines are emulated"},
		{context.DeadlineExceeded, TCG, "KVM: /dev/kvm runs no guest within 2s; machines are emulated"},
		{errors.New("QEMU ended with exit status 1: no"), TCG, "KVM: /dev/kvm runs no guest: QEMU ended with exit status 1: no; machines are emulated"},
	} {
		got := chooseAfterProbe(c.trial)
		assert.Equal(t, c.kind, got.Kind)
		assert.Equal(t, c.want, got.String())
	}
}

func TestWhatIsAskedIsTaken(t *testing.T) {
	for _, c := range []struct {
		asked, variable string
		want            Kind
	}{{"kvm", "", KVM}, {"tcg", "", TCG}, {"", "tcg", TCG}, {"", "kvm", KVM}, {"tcg", "kvm", TCG}} {
		t.Setenv(Variable, c.variable)
		got, err := Choose(t.Context(), c.asked)
		require.NoError(t, err)
		assert.Equal(t, c.want, got.Kind, "%+v", c)
	}
	_, err := Choose(t.Context(), "hvf")
	assert.EqualError(t, err, `accelerator "hvf" is not known; want kvm or tcg`)
}

func TestSpeed(t *testing.T) {
	assert.InDelta(t, 1, speedOf(reference), 1e-9)
	assert.InDelta(t, 0.5, speedOf(2*reference), 1e-9)
	assert.InDelta(t, 670, speedOf(0), 1e-9, "less than can be told")
}

// fakeQEMU puts a program in QEMU's place.
func fakeQEMU(t *testing.T, script string) {
	bin := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "qemu-system-x86_64"), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

func TestATrialFails(t *testing.T) {
	for script, want := range map[string]string{
		"exit 65": "",
		"exit 0":  "QEMU ended with <nil>: it said nothing",
		"echo 'qemu: warning: no such bit' >&2; echo 'qemu: error: failed to set MSR' >&2; exit 1": "QEMU ended with exit status 1: qemu: error: failed to set MSR",
	} {
		fakeQEMU(t, script)
		_, err := KVM.run(t.Context(), 0)
		if want == "" {
			assert.NoError(t, err)
			continue
		}
		assert.EqualError(t, err, want)
	}
}

// TestAGuestThatHangsIsEnded: nothing is left of it.
func TestAGuestThatHangsIsEnded(t *testing.T) {
	fakeQEMU(t, "exec sleep 1000")
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := KVM.run(ctx, 0)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestTheTrialRuns proves the program and its exit code: under emulation it must come to its end.
func TestTheTrialRuns(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "qemu") {
		t.Skip("boots a machine in QEMU; run with FIRSTLIGHT_TEST=qemu")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	short, err := TCG.run(ctx, 0)
	require.NoError(t, err)
	long, err := TCG.run(ctx, 5*rounds)
	require.NoError(t, err)
	assert.Greater(t, long, short, "it does the rounds, which take seconds")
	quick, err := TCG.Speed(ctx)
	require.NoError(t, err)
	assert.Positive(t, quick)

	choice, err := Choose(ctx, "")
	require.NoError(t, err)
	t.Logf("%s; %s alone, %s with its rounds; speed %.2f", choice, short, long, quick)
}
