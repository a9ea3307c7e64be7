package bootserver_test

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/boottrace"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

var (
	mac1  = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	here  = netip.MustParseAddr("192.0.2.1") // httptest's client
	token = pxe.Secret("s3cret-t0ken")
)

// TestTokenGoesToItsMachineOnly, and into no log, record or refusal.
func TestTokenGoesToItsMachineOnly(t *testing.T) {
	b := newFixture(t)
	b.rack.boots[mac1.String()] = pxe.Boot{Action: pxe.ActionRamdisk, Kernel: "k", Args: []string{"agent=${token}"}, Token: token}
	for _, mac := range []net.HardwareAddr{nil, {0x52, 0x54, 0, 0, 0, 2}} {
		if mac != nil {
			b.rack.leases[here] = mac
		}
		stolen := b.get("/ipxe/52-54-00-00-00-01")
		assert.NotContains(t, stolen.Body.String(), token.Reveal())
		assert.Contains(t, stolen.Body.String(), "a script with a token goes to the machine`s own address only")
		kept, ok := b.Record.Get(mac1)
		require.True(t, ok)
		assert.Equal(t, "refuse", kept.Last.Detail)
		assert.True(t, kept.Last.ByAnother)
	}
	b.rack.leases[here] = mac1
	own := b.get("/ipxe/52-54-00-00-00-01")
	assert.Contains(t, own.Body.String(), " agent=s3cret-t0ken ")
	assert.Equal(t, "no-store", own.Header().Get("Cache-Control"))
	assert.NotContains(t, b.log.String(), token.Reveal())
	kept, ok := b.Record.Get(mac1)
	require.True(t, ok)
	assert.Equal(t, boottrace.StepScript, kept.Last.Step)
	assert.False(t, kept.Last.ByAnother)
}

// TestWhatAnotherAsksSaysNothingOfAMachine: whoever asks in its name is answered, and is no witness of what it boots.
func TestWhatAnotherAsksSaysNothingOfAMachine(t *testing.T) {
	for _, action := range []pxe.Action{pxe.ActionInspect, pxe.ActionWait, pxe.ActionDisk, pxe.ActionRefuse} {
		b := newFixture(t)
		b.rack.boots[mac1.String()] = pxe.Boot{Action: action, Kernel: "k", Reason: "it waits"}
		b.rack.leases[here] = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 2}
		b.get("/ipxe/52-54-00-00-00-01")
		kept, ok := b.Record.Get(mac1)
		require.True(t, ok, action)
		require.Len(t, kept.Marks, 1, action)
		assert.True(t, kept.Marks[0].ByAnother, action)
		assert.False(t, kept.Addr.IsValid(), "%s: its address is another's", action)

		b.rack.leases[here] = mac1
		b.get("/ipxe/52-54-00-00-00-01")
		delete(b.rack.leases, here)
		b.get("/ipxe/52-54-00-00-00-01")
		kept, _ = b.Record.Get(mac1)
		require.Len(t, kept.Marks, 1, action)
		assert.False(t, kept.Marks[0].ByAnother, "%s: what it asked itself is lost", action)
		assert.Equal(t, kept.Marks[0], kept.Last, action)
		assert.Equal(t, here, kept.Addr)
	}
}

// TestFinishedScript: the conductor's file is sent as it is; until it is there, and
// whole, the machine waits and says for what.
func TestFinishedScript(t *testing.T) {
	b := newFixture(t)
	b.rack.boots[mac1.String()] = pxe.Boot{Action: pxe.ActionRamdisk, Script: "pxelinux.cfg/52-54-00-00-00-01"}
	assert.Contains(t, b.get("/ipxe/52-54-00-00-00-01").Body.String(), "waits: its script is not written yet: there is no such file here")
	b.write(t, "pxelinux.cfg/52-54-00-00-00-01", []byte(""))
	assert.Contains(t, b.get("/ipxe/52-54-00-00-00-01").Body.String(), "waits: its script is not complete yet")
	b.write(t, "pxelinux.cfg/52-54-00-00-00-01", []byte("#!ipxe\nboot\n"))
	assert.Equal(t, "#!ipxe\nboot\n", b.get("/ipxe/52-54-00-00-00-01").Body.String())
}

// TestARamdiskIsToldItsAddress in scripts of ours and of the conductor's: that of the machine that asks.
func TestARamdiskIsToldItsAddress(t *testing.T) {
	b := newFixture(t)
	b.rack.leases[here] = mac1
	args := []string{"firstlight.address=${address}/24"}
	rendered := pxe.Boot{Action: pxe.ActionRamdisk, Kernel: "k", Args: args}
	finished := pxe.Boot{Action: pxe.ActionRamdisk, Script: "pxelinux.cfg/52-54-00-00-00-01"}
	b.write(t, finished.Script, []byte("#!ipxe\nkernel k firstlight.address=${address}/24 BOOTIF=${mac}\nboot\n"))
	for _, boot := range []pxe.Boot{rendered, finished} {
		b.rack.boots[mac1.String()] = boot
		assert.Contains(t, b.get("/ipxe/52-54-00-00-00-01").Body.String(), " firstlight.address=192.0.2.1/24 ")
	}
	assert.Equal(t, "firstlight.address=${address}/24", args[0], "the next machine has another one")
}

// TestBootProgramOfRefusedMachine: the reason is the body.
func TestBootProgramOfRefusedMachine(t *testing.T) {
	b := newFixture(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.boot, "snponly.efi"), []byte("efi"), 0o644))
	b.rack.leases[here] = mac1
	b.rack.boots[mac1.String()] = pxe.Boot{Action: pxe.ActionRefuse, Reason: "two machines use this address"}
	answer := b.get("/boot/snponly.efi")
	assert.Equal(t, 403, answer.Code)
	assert.Equal(t, "52:54:00:00:00:01 may not boot from here: two machines use this address\n", answer.Body.String())
	assert.Equal(t, 404, b.get("/ipxe/nobody").Code)
}

// TestUnfitBootIsShown: what cannot be put in a script is named to the machine, not sent to it.
func TestUnfitBootIsShown(t *testing.T) {
	b := newFixture(t)
	b.rack.boots[mac1.String()] = pxe.Boot{Action: pxe.ActionInspect, Kernel: "k", Args: []string{"a=b ; shell"}}
	text := b.get("/ipxe/52-54-00-00-00-01").Body.String()
	assert.Contains(t, text, "waits: ")
	assert.NotContains(t, text, "; shell")
	assert.NotContains(t, text, "kernel --name")
}

// TestStepsAndDigest: kernel and ramdisk are told apart from images; a known digest is the ETag.
func TestStepsAndDigest(t *testing.T) {
	b := newFixture(t)
	b.rack.leases[here] = mac1
	b.rack.boots[mac1.String()] = pxe.Boot{Action: pxe.ActionInspect, Kernel: "/agent/k", Initrd: []string{"agent/r"}}
	digest := "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	b.Mounts[0].Digest = func(name string) string { return map[string]string{"agent/k": digest}[name] }
	for name, step := range map[string]boottrace.Step{"agent/k": boottrace.StepKernel, "agent/r": boottrace.StepRamdisk, "node.raw": boottrace.StepImage, "1-2/deploy_kernel": boottrace.StepKernel} {
		b.write(t, name, []byte("hello"))
		answer := b.get("/" + name)
		require.Equal(t, 200, answer.Code)
		kept, _ := b.Record.Get(mac1)
		assert.Equal(t, step, kept.Last.Step, name)
		assert.EqualValues(t, 5, kept.Last.Bytes)
		if name == "agent/k" {
			assert.Equal(t, `"sha256-`+digest+`"`, answer.Header().Get("ETag"))
			assert.Equal(t, "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:", answer.Header().Get("Repr-Digest"))
		}
	}
}

// minter makes tokens and remembers for whom.
type minter []string

func (m *minter) Mint(machine pxe.Machine, _ pxe.Boot) (pxe.Secret, error) {
	*m = append(*m, machine.MAC.String()+" "+machine.Addr.String())
	return token, nil
}

// TestEachScriptGetsItsOwnToken: one is made when a script goes to its machine, the conductor's or ours, and for
// nobody else.
func TestEachScriptGetsItsOwnToken(t *testing.T) {
	b := newFixture(t)
	made := &minter{}
	b.Minter = made
	finished := pxe.Boot{Action: pxe.ActionRamdisk, Script: "pxelinux.cfg/52-54-00-00-00-01", Mint: true}
	rendered := pxe.Boot{Action: pxe.ActionInspect, Kernel: "k", Args: []string{"url=https://1.2.3.4/b/${token}/v1"}, Mint: true}
	b.write(t, finished.Script, []byte("#!ipxe\nkernel k ipa-api-url=https://1.2.3.4/b/${token} x=/b/${token}/v1 BOOTIF=${mac}\n"))

	for _, boot := range []pxe.Boot{finished, rendered} {
		b.rack.boots[mac1.String()] = boot
		delete(b.rack.leases, here)
		assert.NotContains(t, b.get("/ipxe/52-54-00-00-00-01").Body.String(), token.Reveal())
	}
	assert.Empty(t, *made, "a token was made for a machine that was not given it")

	b.rack.leases[here] = mac1
	assert.Contains(t, b.get("/ipxe/52-54-00-00-00-01").Body.String(), "/b/s3cret-t0ken/v1 ")
	b.rack.boots[mac1.String()] = finished
	assert.Equal(t, "#!ipxe\nkernel k ipa-api-url=https://1.2.3.4/b/s3cret-t0ken x=/b/s3cret-t0ken/v1 BOOTIF=${mac}\n",
		b.get("/ipxe/52-54-00-00-00-01").Body.String())
	assert.Equal(t, minter{"52:54:00:00:00:01 192.0.2.1", "52:54:00:00:00:01 192.0.2.1"}, *made)
	assert.NotContains(t, b.log.String(), token.Reveal())

	b.write(t, finished.Script, []byte("#!ipxe\nkernel k ipa-api-url=https://1.2.3.4\n"))
	assert.Contains(t, b.get("/ipxe/52-54-00-00-00-01").Body.String(), "written by an earlier version")
	for _, without := range []pxe.Boot{{Action: pxe.ActionDisk, Mint: true}, {Action: pxe.ActionWait, Reason: "r", Mint: true}} {
		b.rack.boots[mac1.String()] = without
		b.get("/ipxe/52-54-00-00-00-01")
	}
	assert.Len(t, *made, 2, "only a ramdisk speaks for its machine")
}
