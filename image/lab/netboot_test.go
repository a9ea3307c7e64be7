package lab_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/cpio"

	"firstlight.dev/firstlight/image/cache"
	"firstlight.dev/firstlight/image/debian"
	"firstlight.dev/firstlight/image/lab"
	"firstlight.dev/firstlight/image/lock"
)

// TestNetboot walks blank machines from their firmware to a program in a ramdisk, with
// the real daemon: OVMF's own PXE over TFTP or its HTTP boot, iPXE, the script, the kernel; SeaBIOS has no PXE of its
// own, its machine begins with the iPXE in QEMU's network card. With Secure Boot enforced it is shim and GRUB in place
// of iPXE.
func TestNetboot(t *testing.T) {
	dir, isInside := enterNetbootNamespace(t)
	if !isInside {
		return
	}

	parts := netbootPaths(dir)
	const (
		script     = `ipxe: script" mac=52:54:00:fe:00:01`
		grubScript = `grub: script" mac=52:54:00:fe:00:02`
	)
	machines := []struct {
		name     string
		firmware lab.Firmware
		mac      string
		device   string
		extra    []string // of QEMU's arguments
		steps    []string // in the daemon's log, in this order
	}{
		{
			"uefi", lab.UEFI, netbootMAC, "virtio-net-pci,romfile=", nil,
			[]string{"event=offer", "file=snponly.efi result=done", script, "path=/vmlinuz", "path=/ramdisk"},
		},
		{
			// A firmware that has no PXE for IPv4 goes on to HTTP boot.
			"uefi-http", lab.UEFI, netbootMAC, "virtio-net-pci,romfile=", withoutPXE,
			[]string{"file=http://172.22.0.1:8080/boot/snponly.efi", "path=/boot/snponly.efi", script, "path=/vmlinuz", "path=/ramdisk"},
		},
		{
			"bios", lab.BIOS, netbootMAC, "virtio-net-pci", nil,
			[]string{"event=offer", script, "path=/vmlinuz", "path=/ramdisk"},
		},
		{
			"secure", lab.SecureBoot, secureMAC, "virtio-net-pci,romfile=", nil,
			[]string{
				"event=offer", "file=shimx64.efi result=done", "file=grubx64.efi result=done",
				"file=/grub/grub.cfg result=done", grubScript, "path=/vmlinuz", "path=/ramdisk",
			},
		},
		{
			// What is signed also boots where nothing asks for a signature.
			"signed", lab.UEFI, secureMAC, "virtio-net-pci,romfile=", nil,
			[]string{
				"file=shimx64.efi result=done", "file=grubx64.efi result=done", grubScript, "path=/vmlinuz", "path=/ramdisk",
			},
		},
		{
			"secure-http", lab.SecureBoot, secureMAC, "virtio-net-pci,romfile=", withoutPXE,
			[]string{
				"file=http://172.22.0.1:8080/boot/shimx64.efi", "path=/boot/shimx64.efi", "path=/boot//grubx64.efi",
				"path=/grub/grub.cfg", grubScript, "path=/vmlinuz", "path=/ramdisk",
			},
		},
	}
	for _, machine := range machines {
		t.Run(machine.name, func(t *testing.T) {
			m, log, _ := newNetbootMachine(t, parts, machine.firmware, machine.mac, machine.device, machine.extra)
			require.NoError(t, m.Start(t.Context()))
			if machine.firmware == lab.SecureBoot {
				see(t, m, "secureboot: Secure boot enabled")
			} else if machine.firmware == lab.UEFI {
				see(t, m, "secureboot: Secure boot disabled")
			}
			assertNetbooted(t, m, machine.mac, log, machine.steps)
		})
	}
}

// assertNetbooted waits for the program in the ramdisk, and holds the daemon's log to the steps on the way, in their
// order.
func assertNetbooted(t *testing.T, m *lab.Machine, mac, log string, steps []string) {
	t.Helper()
	line := see(t, m, "NETBOOT-REACHED-INIT")
	assert.Contains(t, line, "BOOTIF=01-"+strings.ReplaceAll(mac, ":", "-"))
	assert.Contains(t, line, "netboot.word=hello")
	rest := readAll(log)
	for _, step := range steps {
		_, after, found := strings.Cut(rest, step)
		require.True(t, found, "the daemon's log lacks %q, or has it too early", step)
		at := strings.LastIndex(rest[:len(rest)-len(after)], "\n")
		text, _, _ := strings.Cut(rest[at+1:], "\n")
		t.Logf("daemon: %s", text)
		rest = after
	}
}

// Machines of these tests, by what the daemon lets them boot.
const (
	netbootMAC = "52:54:00:fe:00:01"
	secureMAC  = "52:54:00:fe:00:02" // by signed programs
)

// diskGRUB is the signed GRUB for disks, next to the one for networks.
const diskGRUB = "grubx64-disk.efi"

// withoutPXE are arguments of QEMU by which OVMF has no PXE for IPv4: it goes on to HTTP boot.
var withoutPXE = []string{"-fw_cfg", "name=opt/org.tianocore/IPv4PXESupport,string=n"}

// enterNetbootNamespace runs the test again in a network namespace of its own, with all that it starts. There isInside
// is true, and dir has what netbootParts made.
func enterNetbootNamespace(t *testing.T) (dir string, isInside bool) {
	needKind(t, "qemu")
	if os.Getuid() != 0 {
		t.Skip("needs root: the machine hangs on a tap device in a network namespace")
	}
	if dir := os.Getenv(netbootDir); dir != "" {
		makeNetbootLink(t)
		return dir, true
	}

	dir = t.TempDir()
	netbootParts(t, dir)
	run := "^" + t.Name() + "$"
	if _, cases, ok := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); ok {
		run += "/" + cases
	}
	inside := exec.CommandContext(t.Context(), "unshare", "--net", os.Args[0], "-test.run="+run, "-test.v")
	inside.Env = append(os.Environ(), netbootDir+"="+dir)
	out, err := inside.CombinedOutput()
	t.Logf("inside:\n%s", out)
	require.NoError(t, err)
	return "", false
}

// makeNetbootLink makes the link of the machines in the namespace.
func makeNetbootLink(t *testing.T) {
	for _, args := range []string{
		"link set lo up", "tuntap add dev netboot0 mode tap", "addr add 172.22.0.1/24 dev netboot0", "link set netboot0 up",
	} {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		require.NoError(t, err, "ip %s: %s", args, out)
	}
}

// newNetbootMachine is a machine, still off, with a daemon next to it: its log file, and what ends it before the test.
func newNetbootMachine(
	t *testing.T, parts netbootFiles, firmware lab.Firmware, mac, device string, extra []string,
) (m *lab.Machine, log string, stop func()) {
	m, err := lab.New(lab.Config{
		Name: "netboot-" + filepath.Base(t.Name()), Dir: t.TempDir(),
		Firmware: firmware, Accel: accel(t), CPUs: 1, MiB: 768,
		Disks: parts.disks,
		Extra: append(extra, "-netdev", "tap,id=t0,ifname=netboot0,script=no,downscript=no",
			"-device", device+",netdev=t0,mac="+mac+",bootindex=1"),
	})
	require.NoError(t, err)
	log, stop = startBootServices(t, parts)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("QEMU: %s\nconsole:\n%s\ndaemon:\n%s", m.CommandLine(), m.Console().Tail(100), readAll(log))
		}
		assert.NoError(t, m.Close())
	})
	return m, log, stop
}

// netbootFiles is where the parts are.
type netbootFiles struct {
	daemon, ipxe, signed, web string

	address, subnet string // of the daemon, in the words of its configuration

	secure string     // what the daemon lets secureMAC boot, likewise
	disks  []lab.Disk // of the machine
}

const netbootDir = "FIRSTLIGHT_NETBOOT_DIR" // set inside the namespace

func netbootPaths(dir string) netbootFiles {
	return netbootFiles{
		daemon: filepath.Join(dir, "firstlightd"),
		ipxe:   filepath.Join(dir, "deb/usr/lib/ipxe"),
		signed: filepath.Join(dir, "signed"),
		web:    filepath.Join(dir, "web"),

		address: "172.22.0.1",
		subnet:  "{prefix: 172.22.0.0/24, pool: 172.22.0.100-172.22.0.199, lease: 10m}",

		secure: "action: ramdisk, kernel: vmlinuz, initrd: [ramdisk], args: [console=ttyS0, panic=-1, netboot.word=hello]",
	}
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

	deb := filepath.Join(dir, "deb")
	unpackDebs(t, deb, "ipxe", "linux-image-[0-9]*", "shim-signed", "grub-efi-amd64-signed")
	kernels, err := filepath.Glob(filepath.Join(deb, "boot/vmlinuz-*"))
	require.NoError(t, err)
	require.NotEmpty(t, kernels)
	require.NoError(t, os.Rename(kernels[0], filepath.Join(parts.web, "vmlinuz")))
	require.NoError(t, os.MkdirAll(parts.signed, 0o755))
	for from, to := range map[string]string{
		"usr/lib/shim/shimx64.efi.signed":                      "shimx64.efi",
		"usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed": "grubx64.efi",
		"usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed":    diskGRUB,
	} {
		require.NoError(t, os.Rename(filepath.Join(deb, from), filepath.Join(parts.signed, to)))
	}
}

// unpackDebs unpacks packages that the image is built from, by patterns of their names.
func unpackDebs(t *testing.T, into string, patterns ...string) {
	locked, err := lock.ReadFile("../../assets/recipe.lock")
	require.NoError(t, err)
	var wanted []debian.Package
	for _, pattern := range patterns {
		i := slices.IndexFunc(locked.Packages(), func(p debian.Package) bool {
			match, err := filepath.Match(pattern, p.Name)
			return err == nil && match
		})
		require.GreaterOrEqual(t, i, 0, "no package of the lock matches %s", pattern)
		wanted = append(wanted, locked.Packages()[i])
	}

	store, err := cache.DefaultStore()
	require.NoError(t, err)
	mirror := func() (debian.Mirror, error) { return debian.FindMirror(t.Context(), "") }
	files, err := debian.Fetch(t.Context(), store, mirror, wanted, func(int, int) {})
	require.NoError(t, err)
	for _, p := range wanted {
		out, err := exec.Command("dpkg-deb", "-x", files[p.SHA256], into).CombinedOutput()
		require.NoError(t, err, "unpack %s: %s", p.Name, out)
		t.Logf("uses %s %s", p.Name, p.Version)
	}
}

// startBootServices runs `firstlightd pxe` in the namespace of this thread, until stop or the test's end. It returns its
// log file and stop.
func startBootServices(t *testing.T, parts netbootFiles) (logFile string, stop func()) {
	dir := t.TempDir()
	config := filepath.Join(dir, "pxe.yaml")
	text := fmt.Sprintf(`interface: netboot0
address: %s
boot: [%s, %s]
mounts:
- {path: /, dir: %s}
dhcp:
  leases: %s
  subnets:
  - %s
machines:
  "52:54:00:fe:00:01": {action: ramdisk, kernel: vmlinuz, initrd: [ramdisk], args: [console=ttyS0, panic=-1, netboot.word=hello]}
  "52:54:00:fe:00:02": {secureBoot: true, %s}
`, parts.address, parts.ipxe, parts.signed, parts.web, filepath.Join(dir, "leases"), parts.subnet, parts.secure)
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, parts.daemon, "pxe", "--config", config)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, ignoreExit(cmd.Wait(), ctx))
		_ = log.Close()
	})
	t.Cleanup(stop)
	return log.Name(), stop
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
