package ipxe_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/ipxe"
)

// TestParseKernelOfTheConductor reads a script as Ironic's template has it, with its other kernels behind the first.
func TestParseKernelOfTheConductor(t *testing.T) {
	text, err := os.ReadFile("testdata/conductor.ipxe")
	require.NoError(t, err)
	kernel, initrds, args, err := ipxe.ParseKernel(text)
	require.NoError(t, err)
	assert.Equal(t, "http://172.22.0.1:6180/0c1e/deploy_kernel", kernel)
	assert.Equal(t, []string{"http://172.22.0.1:6180/0c1e/deploy_ramdisk"}, initrds)
	assert.Equal(t, []string{
		"selinux=0", "troubleshoot=0", "text", "panic=30", "ipa-api-url=https://172.22.0.1:6385/boots/${token}", "ipa-debug=1",
	}, args)
}

func TestParseKernelOfOurOwn(t *testing.T) {
	boot := pxe.Boot{Action: pxe.ActionRamdisk, Kernel: "k", Initrd: []string{"r", "ca.cpio"}, Args: []string{"a=b"}}
	text, err := ipxe.Render(base, mac, boot)
	require.NoError(t, err)
	kernel, initrds, args, err := ipxe.ParseKernel(text)
	require.NoError(t, err)
	assert.Equal(t, base+"/k", kernel)
	assert.Equal(t, []string{base + "/r", base + "/ca.cpio"}, initrds)
	assert.Equal(t, []string{"a=b"}, args)
}

func TestParseKernelRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":           "",
		"no kernel":         "#!ipxe\nsanboot http://h/disc.iso\nboot\n",
		"no file":           "#!ipxe\nkernel --timeout 5\nboot\n",
		"no boot":           "#!ipxe\nkernel k\ninitrd r\n",
		"two files":         "#!ipxe\nkernel k\ninitrd r s\nboot\n",
		"another command":   "#!ipxe\nkernel k\nimgargs k a=b\nboot\n",
		"a label before it": "#!ipxe\nkernel k\n:retry\nboot\n",
	} {
		_, _, _, err := ipxe.ParseKernel([]byte(text))
		assert.ErrorIs(t, err, ipxe.ErrScript, name)
	}
}
