package virtualrack

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/image/lab/accelerator"
)

func TestWhatTheKernelSays(t *testing.T) {
	mib, known := freeMiB("MemTotal:       16000000 kB\nMemAvailable:   10485760 kB\n")
	assert.Equal(t, 10240, mib)
	assert.True(t, known)
	_, known = freeMiB("MemTotal: 1 kB\n")
	assert.False(t, known)
}

func TestPatience(t *testing.T) {
	for patience, want := range map[float64]time.Duration{0: time.Minute, 0.5: time.Minute, 2: 2 * time.Minute} {
		assert.Equal(t, want, Run{TimeoutFactor: patience}.ScaleTimeout(time.Minute))
	}
}

func TestFit(t *testing.T) {
	kvm := accelerator.Choice{Kind: accelerator.KVM, Why: "machines run on this computer's own processors"}
	tcg := accelerator.Choice{Kind: accelerator.TCG, Why: "/dev/kvm is not there"}
	for _, c := range []struct {
		name  string
		host  HostCapacity
		asked int
		want  Fit
	}{
		{"the README's computer", HostCapacity{tcg, 1, 2, 16384, 0}, 0, Fit{2, 1, []string{
			"KVM: /dev/kvm is not there; machines are emulated. Here are 2 processors and 16.0 GiB of free memory.",
			"A rack runs at about 100 % of the speed of the README's computer, with everything else that runs here: two proven servers in about 11 min, their cluster in about 20 min.",
		}}},
		{"more processors promise nothing", HostCapacity{tcg, 1, 16, 65536, 0}, 0, Fit{2, 1, []string{
			"KVM: /dev/kvm is not there; machines are emulated. Here are 16 processors and 64.0 GiB of free memory.",
			"A rack runs at about 100 % of the speed of the README's computer, with everything else that runs here: two proven servers in about 11 min, their cluster in about 20 min.",
		}}},
		{"slower, as docs/performance.md has it", HostCapacity{tcg, 0.57, 2, 16384, 0}, 0, Fit{2, 1.75, []string{
			"KVM: /dev/kvm is not there; machines are emulated. Here are 2 processors and 16.0 GiB of free memory.",
			"A rack runs at about 57 % of the speed of the README's computer, with everything else that runs here: two proven servers in about 19 min, their cluster in about 35 min.",
		}}},
		{"memory for one", HostCapacity{tcg, 1, 2, 9000, 0}, 0, Fit{1, 1, []string{
			"KVM: /dev/kvm is not there; machines are emulated. Here are 2 processors and 8.8 GiB of free memory.",
			"A rack runs at about 100 % of the speed of the README's computer, with everything else that runs here: one proven server in about 10 min, its cluster in about 18 min.",
			"One node: two would need 10240 MiB of memory, 9000 MiB are free. N=2 asks for two.",
		}}},
		{"busy, or slower", HostCapacity{tcg, 0.4, 2, 16384, 0}, 0, Fit{1, 2.5, []string{
			"KVM: /dev/kvm is not there; machines are emulated. Here are 2 processors and 16.0 GiB of free memory.",
			"A rack runs at about 40 % of the speed of the README's computer, with everything else that runs here: one proven server in about 25 min, its cluster in about 45 min.",
			"One node: two would keep each other waiting. N=2 asks for two.",
		}}},
		{"throttled", HostCapacity{tcg, 1, 2, 16384, 1}, 0, Fit{2, 2, []string{
			"KVM: /dev/kvm is not there; machines are emulated. Here are 2 processors and 16.0 GiB of free memory; each machine is throttled to 1 processors.",
			"A rack runs at about 50 % of the speed of the README's computer, with everything else that runs here: two proven servers in about 22 min, their cluster in about 40 min.",
		}}},
		{"two were asked for", HostCapacity{tcg, 0.4, 2, 16384, 0}, 2, Fit{2, 2.5, []string{
			"KVM: /dev/kvm is not there; machines are emulated. Here are 2 processors and 16.0 GiB of free memory.",
			"A rack runs at about 40 % of the speed of the README's computer, with everything else that runs here: two proven servers in about 28 min, their cluster in about 50 min.",
			"One node (N=1) would suit this computer better: more keep each other waiting.",
		}}},
		{"three were asked for, of a kernel that does not tell its memory", HostCapacity{tcg, 1, 2, 0, 0}, 3, Fit{3, 1, []string{
			"KVM: /dev/kvm is not there; machines are emulated. Here are 2 processors.",
			"A rack runs at about 100 % of the speed of the README's computer, with everything else that runs here: two proven servers would take about 11 min, their cluster 20 min; 3 take longer.",
		}}},
		{"hardly", HostCapacity{tcg, 0.075, 1, 8192, 0}, 0, Fit{1, 6, []string{
			"KVM: /dev/kvm is not there; machines are emulated. Here is one processor and 8.0 GiB of free memory.",
			"A rack runs at about 8 % of the speed of the README's computer, with everything else that runs here: one proven server in about 3 hours, its cluster in about 4 hours.",
			"One node: two would need 10240 MiB of memory, 8192 MiB are free. N=2 asks for two.",
			"That is too slow for deadlines within Kubernetes, and the rack may never finish: stop what else runs here, or use a faster computer.",
		}}},
		{"KVM", HostCapacity{kvm, 12, 2, 16384, 0}, 0, Fit{2, 1, []string{
			"KVM: machines run on this computer's own processors. Here are 2 processors and 16.0 GiB of free memory.",
			"Less is to be expected than the 11 min to two proven servers and 20 min to their cluster of the README's emulated rack; no rack was timed under KVM.",
		}}},
	} {
		got := c.host.Fit(DefaultOrder(), c.asked)
		assert.InDelta(t, c.want.TimeoutFactor, got.TimeoutFactor, 0.01, c.name)
		got.TimeoutFactor = c.want.TimeoutFactor
		assert.Equal(t, c.want, got, c.name)
	}
}
