package lab_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/cpio"

	"firstlight.dev/firstlight/image/lab"
)

// TestNetboot walks blank machines from their firmware to a program in a ramdisk, with
// the real daemon: OVMF's own PXE over TFTP or its HTTP boot, iPXE, the script, the kernel; SeaBIOS has no PXE of its
// own, its machine begins with the iPXE in QEMU's network card.
func TestNetboot(t *testing.T) {
	needKind(t, "qemu")
	if os.Getuid() != 0 {
		t.Skip("needs root: the machine hangs on a tap device in a network namespace")
	}
	dir := os.Getenv(netbootDir)
	if dir == "" {
		// The rest runs in a network namespace of its own, with all that it starts.
		dir = t.TempDir()
		netbootParts(t, dir)
		inside := exec.CommandContext(t.Context(), "unshare", "--net", os.Args[0], "-test.run=^TestNetboot$", "-test.v")
		inside.Env = append(os.Environ(), netbootDir+"="+dir)
		out, err := inside.CombinedOutput()
		t.Logf("inside:\n%s", out)
		require.NoError(t, err)
		return
	}
	for _, args := range []string{"link set lo up", "tuntap add dev netboot0 mode tap", "addr add 172.22.0.1/24 dev netboot0", "link set netboot0 up"} {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		require.NoError(t, err, "ip %s: %s", args, out)
	}
	parts := netbootPaths(dir)
	const script = `ipxe: script" mac=52:54:00:fe:00:01`
	machines := []struct {
		name     string
		firmware lab.Firmware
		device   string
		extra    []string // of QEMU's arguments
		steps    []string // in the daemon's log, in this order
	}{
		{
			"uefi", lab.UEFI, "virtio-net-pci,romfile=", nil,
			[]string{"event=offer", "file=snponly.efi result=done", script, "path=/vmlinuz", "path=/ramdisk"},
		},
		{
			// A firmware that has no PXE for IPv4 goes on to HTTP boot.
			"uefi-http", lab.UEFI, "virtio-net-pci,romfile=", []string{"-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n"},
			[]string{"file=http://172.22.0.1:8080/boot/snponly.efi", "path=/boot/snponly.efi", script, "path=/vmlinuz", "path=/ramdisk"},
		},
		{
			"bios", lab.BIOS, "virtio-net-pci", nil,
			[]string{"event=offer", script, "path=/vmlinuz", "path=/ramdisk"},
		},
	}
	for _, machine := range machines {
		t.Run(machine.name, func(t *testing.T) {
			m, err := lab.New(lab.Config{
				Name: "netboot-" + machine.name, Dir: t.TempDir(), Firmware: machine.firmware, Accel: accel(t), CPUs: 1, MiB: 768,
				Extra: append(machine.extra, "-netdev", "tap,id=t0,ifname=netboot0,script=no,downscript=no",
					"-device", machine.device+",netdev=t0,mac=52:54:00:fe:00:01,bootindex=1"),
			})
			require.NoError(t, err)
			log := startBootServices(t, parts)
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("QEMU: %s\nconsole:\n%s\ndaemon:\n%s", m.CommandLine(), m.Console().Tail(100), readAll(log))
				}
				assert.NoError(t, m.Close())
			})
			require.NoError(t, m.Start(t.Context()))
			line := see(t, m, "NETBOOT-REACHED-INIT")
			assert.Contains(t, line, "BOOTIF=01-52-54-00-fe-00-01")
			assert.Contains(t, line, "netboot.word=hello")
			rest := readAll(log)
			for _, step := range machine.steps {
				_, after, found := strings.Cut(rest, step)
				require.True(t, found, "the daemon's log lacks %q, or has it too early", step)
				at := strings.LastIndex(rest[:len(rest)-len(after)], "\n")
				text, _, _ := strings.Cut(rest[at+1:], "\n")
				t.Logf("daemon: %s", text)
				rest = after
			}
		})
	}
}

// netbootFiles is where the parts are.
type netbootFiles struct{ daemon, ipxe, web string }

const netbootDir = "FIRSTLIGHT_NETBOOT_DIR" // set inside the namespace

func netbootPaths(dir string) netbootFiles {
	return netbootFiles{daemon: filepath.Join(dir, "firstlightd"), ipxe: filepath.Join(dir, "deb/usr/lib/ipxe"), web: filepath.Join(dir, "web")}
}

// netbootParts builds the daemon and a ramdisk of one program, and finds iPXE and a kernel.
func netbootParts(t *testing.T, dir string) {
	parts := netbootPaths(dir)
	require.NoError(t, os.MkdirAll(parts.web, 0o755))
	build := func(out, pkg string) {
		text, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", out, pkg).CombinedOutput()
		require.NoError(t, err, "%s", text)
	}
	build(parts.daemon, "../../cmd/firstlightd")
	build(filepath.Join(dir, "init"), "./testdata/netboot")
	program, err := os.ReadFile(filepath.Join(dir, "init"))
	require.NoError(t, err)
	var archive bytes.Buffer
	w := cpio.Newc.Writer(&archive)
	for _, r := range []cpio.Record{cpio.Directory("dev", 0o755), cpio.CharDev("dev/console", 0o600, 5, 1), cpio.Directory("proc", 0o755), cpio.StaticFile("init", string(program), 0o755)} {
		require.NoError(t, w.WriteRecord(cpio.MakeReproducible(r)))
	}
	require.NoError(t, cpio.WriteTrailer(w))
	require.NoError(t, os.WriteFile(filepath.Join(parts.web, "ramdisk"), archive.Bytes(), 0o644))

	unpackDeb(t, "ipxe", filepath.Join(dir, "deb"))
	unpackDeb(t, "linux-image-[0-9]*", filepath.Join(dir, "deb"))
	kernels, err := filepath.Glob(filepath.Join(dir, "deb/boot/vmlinuz-*"))
	require.NoError(t, err)
	require.NotEmpty(t, kernels)
	require.NoError(t, os.Rename(kernels[0], filepath.Join(parts.web, "vmlinuz")))
}

// unpackDeb unpacks a package: the one the image is built from, if that is in the cache,
// else the one of this machine's Debian.
func unpackDeb(t *testing.T, pattern, into string) {
	cache := os.Getenv("FIRSTLIGHT_CACHE")
	if cache == "" {
		home, err := os.UserCacheDir()
		require.NoError(t, err)
		cache = filepath.Join(home, "firstlight")
	}
	kept := filepath.Join(cache, "netboot-test")
	require.NoError(t, os.MkdirAll(kept, 0o755))
	var found []string
	for _, dir := range []string{filepath.Join(cache, "deb"), kept} {
		match, err := filepath.Glob(filepath.Join(dir, pattern+"_*.deb"))
		require.NoError(t, err)
		found = append(found, match...)
	}
	if len(found) == 0 {
		name := pattern
		if strings.HasPrefix(pattern, "linux-image") {
			out, err := exec.Command("apt-cache", "depends", "linux-image-cloud-amd64").Output()
			require.NoError(t, err)
			_, after, ok := strings.Cut(string(out), "Depends: ")
			require.True(t, ok, "%s", out)
			name, _, _ = strings.Cut(after, "\n")
		}
		cmd := exec.Command("apt-get", "-o", "APT::Sandbox::User=root", "download", name)
		cmd.Dir = kept
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "apt-get download %s: %s", name, out)
		if found, err = filepath.Glob(filepath.Join(kept, pattern+"_*.deb")); len(found) == 0 {
			require.NoError(t, err)
			t.Fatalf("apt-get download %s left no package matching %s", name, pattern)
		}
	}
	out, err := exec.Command("dpkg-deb", "-x", found[0], into).CombinedOutput()
	require.NoError(t, err, "unpack %s: %s", found[0], out)
	t.Logf("uses %s", filepath.Base(found[0]))
}

// startBootServices runs `firstlightd pxe` in the namespace of this thread and returns its log file.
func startBootServices(t *testing.T, parts netbootFiles) string {
	dir := t.TempDir()
	config := filepath.Join(dir, "pxe.yaml")
	text := fmt.Sprintf(`interface: netboot0
address: 172.22.0.1
boot: [%s]
mounts:
- {path: /, dir: %s}
dhcp:
  leases: %s
  subnets:
  - {prefix: 172.22.0.0/24, pool: 172.22.0.100-172.22.0.199, lease: 10m}
machines:
  "52:54:00:fe:00:01": {action: ramdisk, kernel: vmlinuz, initrd: [ramdisk], args: [console=ttyS0, panic=-1, netboot.word=hello]}
`, parts.ipxe, parts.web, filepath.Join(dir, "leases"))
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, parts.daemon, "pxe", "--config", config)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, ignoreExit(cmd.Wait(), ctx))
		_ = log.Close()
	})
	return log.Name()
}

// ignoreExit: a daemon that was told to stop ends without an error of its own.
func ignoreExit(err error, ctx context.Context) error {
	if ctx.Err() != nil && strings.Contains(fmt.Sprint(err), context.Canceled.Error()) {
		return nil
	}
	return err
}

func readAll(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
