package grub_test

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/grub"
)

const base = "http://172.22.0.1:8080"

var mac = net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0xab}

func TestScripts(t *testing.T) {
	tests := map[string]pxe.Boot{
		"refuse": {Action: pxe.ActionRefuse, Reason: "the site file doesn't name it; add it under nodes"},
		"disk":   {Action: pxe.ActionDisk, Reason: "it is provisioned"},
		"wait":   {Action: pxe.ActionWait, Reason: "its script is not written yet"},
		"inspect": {
			Action: pxe.ActionInspect,
			Kernel: "agent/vmlinuz",
			Initrd: []string{"/agent/ramdisk"},
			Args:   []string{"ipa-api-url=https://172.22.0.1:6385", "console=ttyS0,115200n8"},
		},
		"ramdisk": {
			Action: pxe.ActionRamdisk,
			Kernel: "http://172.22.0.2/k",
			Initrd: []string{"r", "ca.cpio"},
			Args:   []string{"agent-token=${token}"},
			Token:  "abc.DEF-1~2_3",
		},
		"kernel-alone": {Action: pxe.ActionRamdisk, Kernel: "k"},
	}
	for name, boot := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := grub.Render(base, mac, boot)
			require.NoError(t, err)
			goldentest.Check(t, "testdata/"+name+".cfg", got)
		})
	}
	t.Run("config", func(t *testing.T) {
		got, err := grub.Config(base)
		require.NoError(t, err)
		goldentest.Check(t, "testdata/grub.cfg", got)
	})
}

// attacks are what a reason, an argument, a path or a token could carry into a script.
var attacks = []string{
	"a\nreboot", "a\r\nreboot", "a ; reboot", "a || reboot", "a && reboot", "a' ; reboot ; echo 'b", "'", "''", "\\'", "\"", "$root", "${root}",
	"a#b", "a\\b", "a b", "a\tb", "a\x00b", "a\u2028b", "\xff", "", "a|b", "a`b", "a>b", "a<b", "{", "}", "fi", "done", "!reboot", "&",
	"initrd=x", "BOOTIF=x", strings.Repeat("a", 5000),
}

// TestFault18NothingIsInjectedIntoAConfiguration: an attack is refused wherever it stands; in a sentence for people it
// is made harmless.
func TestFault18NothingIsInjectedIntoAConfiguration(t *testing.T) {
	const harmless = "{}fidone" // between quotes
	for _, attack := range attacks {
		boot := pxe.Boot{Action: pxe.ActionRamdisk, Kernel: "k", Args: []string{attack}}
		if _, err := grub.Render(base, mac, boot); !strings.Contains(harmless, attack) || attack == "" {
			assert.Error(t, err, "argument %q", attack)
		}

		for _, action := range []pxe.Action{pxe.ActionRefuse, pxe.ActionDisk, pxe.ActionWait, pxe.ActionInspect} {
			plain, err := grub.Render(base, mac, pxe.Boot{Action: action, Reason: "x", Kernel: "k"})
			require.NoError(t, err)
			text, err := grub.Render(base, mac, pxe.Boot{Action: action, Reason: "x " + attack, Kernel: "k"})
			require.NoError(t, err)
			assert.Equal(t, commands(t, plain), commands(t, text), "reason %q", attack)
		}
	}

	paths := []string{
		"../k", "a b", "a;b", "a'b", "$x", "a\nb", "", "a)b", "http://u:p@h/k", "ftp://1.2.3.4/k", "https://1.2.3.4/k", "http:///k",
		"http://h/k", "http://[fd00::1]/k", "http://1.2.3.4/a b", "http://1.2.3.4/a?b=c", "http://1.2.3.4/a%27", "file:///etc/passwd", "k?x",
		"k%2e", "http://1.2.3.4:99999/k", "http://1.2.3.4)/k",
	}
	for _, path := range paths {
		_, err := grub.Render(base, mac, pxe.Boot{Action: pxe.ActionRamdisk, Kernel: path})
		assert.Error(t, err, "kernel %q", path)
		_, err = grub.Render(base, mac, pxe.Boot{Action: pxe.ActionRamdisk, Kernel: "k", Initrd: []string{path}})
		assert.Error(t, err, "initrd %q", path)
	}

	_, err := grub.Render(base, mac, pxe.Boot{Action: pxe.ActionRamdisk, Kernel: "k", Args: []string{"x=${token}"}})
	assert.Error(t, err, "a token asked for that is not there")
	_, err = grub.Render(base, net.HardwareAddr{1, 2}, pxe.Boot{})
	assert.Error(t, err)
	for _, wrong := range []string{"https://172.22.0.1", "http://appliance", "172.22.0.1", "http://172.22.0.1'"} {
		_, err = grub.Config(wrong)
		assert.Error(t, err, wrong)
	}
}

// commands is what GRUB would do: the commands of a script, each without what is between single quotes. Everything
// outside of quotes is of the templates.
func commands(t testing.TB, text []byte) []string {
	var all []string
	for line := range strings.Lines(string(text)) {
		parts := strings.Split(line, "'")
		require.Equal(t, 1, len(parts)%2, "a quote is not closed: %q", line)
		plain := ""
		for i := 0; i < len(parts); i += 2 {
			plain += parts[i] + "_"
		}
		all = append(all, plain)
	}
	return all
}

// FuzzScript: whatever a Boot holds, a script has only the commands of its template.
func FuzzScript(f *testing.F) {
	for _, attack := range attacks {
		f.Add(attack, "k", "a=b", "token")
		f.Add("reason", attack, "a=b", "token")
		f.Add("reason", "k", attack, "token")
		f.Add("reason", "k", "t=${token}", attack)
	}
	f.Fuzz(func(t *testing.T, reason, path, arg, token string) {
		for _, action := range []pxe.Action{pxe.ActionRefuse, pxe.ActionDisk, pxe.ActionInspect, pxe.ActionRamdisk, pxe.ActionWait} {
			plain, err := grub.Render(base, mac, pxe.Boot{Action: action, Kernel: "k", Initrd: []string{"k"}, Args: []string{"a"}})
			require.NoError(t, err)
			text, err := grub.Render(base, mac, pxe.Boot{
				Action: action,
				Reason: reason,
				Kernel: path,
				Initrd: []string{path},
				Args:   []string{arg},
				Token:  pxe.Secret(token),
			})
			if err != nil {
				if len(token) > 8 && strings.Contains(arg, "${token}") && !strings.Contains(arg+path+reason, token) {
					assert.NotContains(t, err.Error(), token)
				}
				continue
			}
			assert.Equal(t, commands(t, plain), commands(t, text))
			assert.NotContains(t, string(text), "\r")
			assert.NotContains(t, string(text), "$")
		}
	})
}
