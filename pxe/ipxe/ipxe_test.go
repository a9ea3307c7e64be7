package ipxe_test

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/goldentest"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/ipxe"
)

const base = "http://172.22.0.1:8080"

var mac = net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0xab}

func TestScripts(t *testing.T) {
	tests := map[string]pxe.Boot{
		"refuse":  {Action: pxe.ActionRefuse, Reason: "the site file doesn't name it; add it under nodes"},
		"disk":    {Action: pxe.ActionDisk, Reason: "it is provisioned"},
		"inspect": {Action: pxe.ActionInspect, Kernel: "agent/vmlinuz", Initrd: []string{"/agent/ramdisk"}, Args: []string{"ipa-api-url=https://172.22.0.1:6385", "console=ttyS0,115200n8"}},
		"ramdisk": {Action: pxe.ActionRamdisk, Kernel: "http://172.22.0.2/k", Initrd: []string{"r", "ca.cpio"}, Args: []string{"agent-token=${token}"}, Token: "abc.DEF-1~2_3"},
	}
	for name, boot := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ipxe.Render(base, mac, boot)
			require.NoError(t, err)
			goldentest.Check(t, "testdata/"+name+".ipxe", got)
		})
	}
	t.Run("retry", func(t *testing.T) {
		got, err := ipxe.Render(base, mac, pxe.Boot{Action: pxe.ActionWait, Reason: "its script is not written yet"})
		require.NoError(t, err)
		goldentest.Check(t, "testdata/retry.ipxe", got)
	})
}

// attacks are what a host name, an argument or a path could carry into a script.
var attacks = []string{
	"a\nshell", "a\r\nshell", "a ; shell", "a || shell", "a && shell", "||", "&&", "${net0/mac}", "$", "a#b", "a\\b", "a\"b", "a'b",
	"a b", "a\tb", "a\x00b", "a\u2028b", "a\u0085b", "\xff", "", "a|b", "a`b", "a>b", "!shell", "&", "initrd=x", "BOOTIF=x", strings.Repeat("a", 5000),
}

// TestFault18ScriptInjection: an attack is refused wherever it stands; in a sentence for
// people it is made harmless.
func TestFault18ScriptInjection(t *testing.T) {
	for _, attack := range attacks {
		boot := pxe.Boot{Action: pxe.ActionRamdisk, Kernel: "k", Initrd: []string{"r"}, Args: []string{attack}}
		_, err := ipxe.Render(base, mac, boot)
		assert.Error(t, err, "argument %q", attack)
		if attack != "a'b" {
			boot = pxe.Boot{Action: pxe.ActionRamdisk, Kernel: "k", Args: []string{"t=${token}"}, Token: pxe.Secret(attack)}
			_, err = ipxe.Render(base, mac, boot)
			if attack != "" && !strings.HasPrefix(attack, "aaaa") {
				assert.Error(t, err, "token %q", attack)
				assert.NotContains(t, err.Error(), attack+"x", "token %q", attack)
			}
		}
		for _, reason := range []string{attack, "x " + attack} {
			for _, action := range []pxe.Action{pxe.ActionRefuse, pxe.ActionDisk} {
				text, err := ipxe.Render(base, mac, pxe.Boot{Action: action, Reason: reason})
				require.NoError(t, err)
				plain, err := ipxe.Render(base, mac, pxe.Boot{Action: action, Reason: "x"})
				require.NoError(t, err)
				assert.Equal(t, skeleton(plain), skeleton(text), "reason %q", reason)
			}
		}
	}
	for _, path := range []string{"../k", "a b", "a;b", "${x}", "a\nb", "", "http://u:p@h/k", "ftp://h/k", "http:///k", "http://h/a b", "file:///etc/passwd", "http://h/;shell", "k?x", "k%2e"} {
		_, err := ipxe.Render(base, mac, pxe.Boot{Action: pxe.ActionRamdisk, Kernel: path})
		assert.Error(t, err, "kernel %q", path)
		_, err = ipxe.Render(base, mac, pxe.Boot{Action: pxe.ActionRamdisk, Kernel: "k", Initrd: []string{path}})
		assert.Error(t, err, "initrd %q", path)
	}
	_, err := ipxe.Render(base, mac, pxe.Boot{Action: pxe.ActionRamdisk, Kernel: "k", Args: []string{"x=${token}"}})
	assert.Error(t, err, "a token asked for that is not there")
	_, err = ipxe.Render(base, net.HardwareAddr{1, 2}, pxe.Boot{})
	assert.Error(t, err)
}

// skeleton is what iPXE would do: the first word of each command. The lines of a script
// must not depend on what people wrote.
func skeleton(text []byte) []string {
	var words []string
	for line := range strings.SplitSeq(string(text), "\n") {
		for _, separator := range []string{";", "&&", "||"} {
			line = strings.ReplaceAll(line, separator, "\n")
		}
		for command := range strings.SplitSeq(line, "\n") {
			if fields := strings.Fields(command); len(fields) > 0 {
				words = append(words, fields[0])
			}
		}
	}
	return words
}

// FuzzScript: whatever a Boot holds, a script has only the commands of its template, and
// nothing in it expands but what the template expands.
func FuzzScript(f *testing.F) {
	for _, attack := range attacks {
		f.Add(attack, "k", "a=b", "token")
		f.Add("reason", attack, "a=b", "token")
		f.Add("reason", "k", attack, "token")
		f.Add("reason", "k", "t=${token}", attack)
	}
	f.Fuzz(func(t *testing.T, reason, path, arg, token string) {
		for _, action := range []pxe.Action{pxe.ActionRefuse, pxe.ActionDisk, pxe.ActionInspect, pxe.ActionRamdisk, pxe.ActionWait} {
			plain, err := ipxe.Render(base, mac, pxe.Boot{Action: action, Kernel: "k", Initrd: []string{"k"}, Args: []string{"a"}})
			require.NoError(t, err)
			text, err := ipxe.Render(base, mac, pxe.Boot{Action: action, Reason: reason, Kernel: path, Initrd: []string{path}, Args: []string{arg}, Token: pxe.Secret(token)})
			if err != nil {
				if len(token) > 8 && strings.Contains(arg, "${token}") && !strings.Contains(arg+path+reason, token) {
					assert.NotContains(t, err.Error(), token)
				}
				continue
			}
			assert.Equal(t, skeleton(plain), skeleton(text))
			assert.Equal(t, strings.Count(string(plain), "$"), strings.Count(string(text), "$"))
			assert.NotContains(t, string(text), "\r")
		}
	})
}
