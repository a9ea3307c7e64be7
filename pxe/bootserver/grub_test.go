package bootserver_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/boottrace"
)

const grubURL = "/grub/52:54:00:00:00:01" // as GRUB writes its own MAC

// TestScriptOfGRUB: the same decisions as for iPXE, in GRUB's words, and a trace of each.
func TestScriptOfGRUB(t *testing.T) {
	b := newFixture(t)
	b.rack.leases[here] = mac1
	for _, c := range []struct {
		boot pxe.Boot
		want string
		mark boottrace.Mark
	}{
		{
			pxe.Boot{Action: pxe.ActionInspect, Kernel: "k", Initrd: []string{"r"}, Args: []string{"a=b"}, SecureBoot: true},
			"linux '(http,172.22.0.1:8080)/k' 'a=b' 'BOOTIF=01-52-54-00-00-00-01'",
			boottrace.Mark{Detail: "inspect"},
		},
		{
			pxe.Boot{Action: pxe.ActionDisk, SecureBoot: true},
			"chainloader /EFI/BOOT/BOOTX64.EFI",
			boottrace.Mark{Detail: "disk"},
		},
		{
			pxe.Boot{Action: pxe.ActionRefuse, Reason: "not of this site", SecureBoot: true},
			"may not boot from here: not of this site",
			boottrace.Mark{Detail: "refuse", Refused: "not of this site"},
		},
		{
			pxe.Boot{Action: pxe.ActionWait, Reason: "not yet", SecureBoot: true},
			"waits: not yet",
			boottrace.Mark{Detail: "wait", Refused: "not yet"},
		},
	} {
		b.rack.boots[mac1.String()] = c.boot
		answer := b.get(grubURL)
		assert.Equal(t, 200, answer.Code)
		assert.Equal(t, "no-store", answer.Header().Get("Cache-Control"))
		assert.Contains(t, answer.Body.String(), c.want)
		assert.NotContains(t, answer.Body.String(), "#!ipxe")
		kept, _ := b.Record.Get(mac1)
		assert.Equal(t, boottrace.StepScript, kept.Last.Step)
		assert.Equal(t, c.mark.Detail, kept.Last.Detail)
		assert.Equal(t, c.mark.Refused, kept.Last.Refused)
	}
}

// TestScriptOfGRUBFromTheConductor: what Ironic wrote for iPXE is rendered for GRUB, with the token of this boot.
func TestScriptOfGRUBFromTheConductor(t *testing.T) {
	b := newFixture(t)
	made := &minter{}
	b.Minter = made
	boot := pxe.Boot{Action: pxe.ActionRamdisk, Script: "pxelinux.cfg/52-54-00-00-00-01", Mint: true, SecureBoot: true}
	b.rack.boots[mac1.String()] = boot
	b.rack.leases[here] = mac1
	assert.Contains(t, b.get(grubURL).Body.String(), "waits: its script is not written yet")

	b.write(t, boot.Script, []byte("#!ipxe\n\n:deploy\nkernel http://172.22.0.1:6180/n/deploy_kernel text "+
		"ipa-api-url=https://1.2.3.4/b/${token} BOOTIF=${mac} initrd=deploy_ramdisk || goto retry\n\ninitrd http://172.22.0.1:6180/n/deploy_ramdisk || goto retry\nboot\n"))
	assert.Equal(t, `echo 'Firstlight: 52:54:00:00:00:01 boots the ramdisk (ramdisk)'
if linux '(http,172.22.0.1:6180)/n/deploy_kernel' 'text' 'ipa-api-url=https://1.2.3.4/b/s3cret-t0ken' 'BOOTIF=01-52-54-00-00-00-01'; then
	if initrd '(http,172.22.0.1:6180)/n/deploy_ramdisk'; then
		boot
	fi
fi
echo 'Firstlight: could not load or start the ramdisk, asking again in 10 seconds'
sleep 10
`, strings.TrimRight(b.get(grubURL).Body.String(), "\n")+"\n")
	assert.Equal(t, minter{"52:54:00:00:00:01 192.0.2.1"}, *made)
	assert.NotContains(t, b.log.String(), token.Reveal())
	kept, _ := b.Record.Get(mac1)
	assert.Equal(t, boot.Script, kept.Last.Detail)

	for _, text := range []string{
		"#!ipxe\nkernel http://h/k x=${token}\n", "#!ipxe\nkernel http://1.2.3.4/k x=${token} y=${net0/mac}\nboot\n",
		"#!ipxe\nkernel http://1.2.3.4/k x=${token} y='\nboot\n", "#!ipxe\nkernel https://1.2.3.4/k x=${token}\nboot\n",
	} {
		b.write(t, boot.Script, []byte(text))
		got := b.get(grubURL).Body.String()
		assert.Contains(t, got, "waits: ", text)
		assert.NotContains(t, got, "linux", text)
		assert.NotContains(t, got, token.Reveal())
	}
	b.write(t, boot.Script, []byte("#!ipxe\nkernel http://1.2.3.4/k\nboot\n"))
	assert.Contains(t, b.get(grubURL).Body.String(), "written by an earlier version")

	minted := len(*made)
	delete(b.rack.leases, here)
	got := b.get(grubURL).Body.String()
	assert.Contains(t, got, "a script with a token goes to the machine`s own address only")
	assert.Len(t, *made, minted, "a token was made for a machine that was not given it")
}

// TestTheSizeOfAScriptIsKnownBefore: GRUB asks for it by HEAD, which makes no token, and reads that much.
func TestTheSizeOfAScriptIsKnownBefore(t *testing.T) {
	b := newFixture(t)
	made := &minter{}
	b.Minter = made
	b.rack.leases[here] = mac1
	long := strings.Repeat("x", 1000)
	for _, boot := range []pxe.Boot{
		{Action: pxe.ActionDisk},
		{Action: pxe.ActionInspect, Kernel: "k", Args: []string{"a=${token}"}, Mint: true},
		{Action: pxe.ActionInspect, Kernel: "k", Args: []string{long, long, long, long, long, long, long, long, long}},
	} {
		b.rack.boots[mac1.String()] = boot
		asked := len(*made)
		head := httptest.NewRecorder()
		b.ServeHTTP(head, httptest.NewRequest("HEAD", "http://server"+grubURL, nil))
		assert.Equal(t, 200, head.Code)
		assert.Empty(t, head.Body.String())
		assert.Len(t, *made, asked)
		answer := b.get(grubURL)
		assert.Equal(t, head.Header().Get("Content-Length"), fmt.Sprint(answer.Body.Len()))
		assert.Equal(t, answer.Header().Get("Content-Length"), fmt.Sprint(answer.Body.Len()))
		assert.True(t, strings.HasSuffix(answer.Body.String(), "\n\n"))
		if len(boot.Args) > 2 {
			assert.Contains(t, answer.Body.String(), "waits: its script has ")
		}
	}
}

// TestConfigurationOfGRUB is the one file at its path that is no machine's; nothing is found next to it.
func TestConfigurationOfGRUB(t *testing.T) {
	b := newFixture(t)
	b.Files.AddText(pxe.GRUBConfig, []byte("source it\n"))
	b.rack.leases[here] = mac1
	b.rack.boots[mac1.String()] = pxe.Boot{Action: pxe.ActionInspect, Kernel: "k", SecureBoot: true}
	answer := b.get("/grub/grub.cfg")
	assert.Equal(t, 200, answer.Code)
	assert.Equal(t, "source it\n", answer.Body.String())
	assert.Equal(t, 200, b.get("//grub//./grub.cfg").Code)
	for path, code := range map[string]int{
		"/grub/": 404, "/grub": 404, "/grub/grub.cfg/": 200, "/grub/x86_64-efi/grub.cfg": 404, "/grub/../grub/grub.cfg": 400,
		"/grub/grub.cfg-01-52-54-00-00-00-01": 404, "/grub/52-54-00-00-00-01-02-03": 404, "/boot/../grub/grub.cfg": 400,
	} {
		assert.Equal(t, code, b.get(path).Code, path)
	}

	b.rack.boots[mac1.String()] = pxe.Boot{Action: pxe.ActionRefuse, Reason: "two machines use this address"}
	assert.Equal(t, 403, b.get("/grub/grub.cfg").Code)
}

// TestSignedProgramsAreServed by HTTP like the others.
func TestSignedProgramsAreServed(t *testing.T) {
	b := newFixture(t)
	for _, name := range []string{"shimx64.efi", "grubx64.efi"} {
		require.NoError(t, os.WriteFile(filepath.Join(b.boot, name), []byte("signed "+name), 0o644))
		b.rack.leases[here] = mac1
		b.rack.boots[mac1.String()] = pxe.Boot{Action: pxe.ActionWait, Reason: "not yet", SecureBoot: true}
		answer := b.get("/boot/" + name)
		assert.Equal(t, 200, answer.Code)
		assert.Equal(t, "signed "+name, answer.Body.String())
		kept, _ := b.Record.Get(mac1)
		assert.Equal(t, boottrace.StepBootFile, kept.Last.Step)
	}
	// What shim asks for and does not need is no step of the machine.
	b.get("/boot/revocations_sbat.efi")
	kept, _ := b.Record.Get(mac1)
	assert.True(t, strings.HasSuffix(kept.Last.Detail, "grubx64.efi"), kept.Last.Detail)
}
