package sriovnodes_test

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/cpio"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/gpt"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/addons/sriov"
	"firstlight.dev/firstlight/image/drivers"
)

// TestMain lets the tests' program be three: the tests; the first process of a virtual machine, which runs some of
// them; and there the CNI plugin.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == sriov.Name:
		sriov.RunPlugin(context.Background())
	case os.Getpid() == 1:
		if err := prepareGuest(); err != nil {
			fmt.Println("prepare the machine:", err)
		} else {
			m.Run()
		}
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	default:
		os.Exit(m.Run())
	}
}

// prepareGuest mounts what the kernel offers, and loads the modules in the initramfs by their order there.
func prepareGuest() error {
	for _, mount := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/run"}, {"tmpfs", "/tmp"},
	} {
		if err := unix.Mount(mount.kind, mount.at, mount.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", mount.at, err)
		}
	}

	modules, err := filepath.Glob("/modules/*.ko") // sorted
	if err != nil {
		return err
	}
	for _, file := range modules {
		module, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := unix.InitModule(module, ""); err != nil {
			return fmt.Errorf("load %s: %w", file, err)
		}
	}
	return os.Symlink("/init", "/opt/cni/bin/sriov")
}

// wantedModules are of the nodes' kernel. Those that they need are loaded before them.
var wantedModules = []string{"igb", "igbvf", "vfio_iommu_type1", "vfio_pci"}

// TestVirtualFunctionsOfAMachine runs tests of this package as the first process of a virtual machine that has two
// network devices with virtual functions (QEMU's igb, an Intel 82576) and an IOMMU. Kernel, modules, QEMU and the plugin
// host-local are the image's own.
func TestVirtualFunctionsOfAMachine(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("FIRSTLIGHT_TEST"), ","), "qemu-all") {
		t.Skip("starts a virtual machine from the built image; set FIRSTLIGHT_TEST=qemu-all")
	}
	g := newGuest(t)
	for name, kernel := range map[string]string{
		"TestInGuest":             "intel_iommu=on iommu=pt",
		"TestInGuestWithoutIOMMU": "intel_iommu=off",
	} {
		t.Run(name, func(t *testing.T) { g.run(t, name, kernel) })
	}
}

// guest is what a machine is started from.
type guest struct {
	layer, kernel, initramfs string // of QEMU; files
}

func newGuest(t *testing.T) guest {
	dir := t.TempDir()
	const layers = "usr/share/firstlight/images/layers/*/fs/"
	unpack(t, dir, "boot/vmlinuz-*", "usr/lib/modules/*/modules.dep",
		layers+"usr/bin/qemu-system-x86_64", layers+"usr/lib/firstlight/cni")
	qemu := onlyFile(t, filepath.Join(dir, layers, "usr/bin/qemu-system-x86_64"))
	table := onlyFile(t, filepath.Join(dir, "usr/lib/modules/*/modules.dep"))
	modules := orderModules(t, table, wantedModules)

	relative := func(file string) string {
		name, err := filepath.Rel(dir, file)
		require.NoError(t, err)
		return name
	}
	layer := filepath.Dir(filepath.Dir(filepath.Dir(qemu)))
	wanted := []string{relative(layer)}
	for _, name := range modules {
		wanted = append(wanted, relative(filepath.Join(filepath.Dir(table), name)))
	}
	unpack(t, dir, wanted...)

	self, err := os.Executable()
	require.NoError(t, err)
	records := []cpio.Record{cpio.CharDev("dev/console", 0o600, 5, 1)}
	for _, name := range []string{"dev", "proc", "sys", "run", "tmp", "modules", "opt", "opt/cni", "opt/cni/bin"} {
		records = append(records, cpio.Directory(name, 0o755))
	}
	add := func(name, file string) {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		records = append(records, cpio.StaticFile(name, string(content), 0o755))
	}
	requireStatic(t, self)
	add("init", self)
	add("opt/cni/bin/host-local", onlyFile(t, filepath.Join(dir, layers, "usr/lib/firstlight/cni/host-local")))
	for i, name := range modules {
		plain, err := drivers.ReadModule(os.DirFS(filepath.Dir(table)), name)
		require.NoError(t, err)
		file := fmt.Sprintf("modules/%02d-%s.ko", i, drivers.ModuleName(name))
		records = append(records, cpio.StaticFile(file, string(plain), 0o644))
	}

	g := guest{layer, onlyFile(t, filepath.Join(dir, "boot/vmlinuz-*")), filepath.Join(dir, "initramfs")}
	f, err := os.Create(g.initramfs)
	require.NoError(t, err)
	defer f.Close()
	// The kernel makes directories only by their own records, which come first.
	slices.SortStableFunc(records, func(a, b cpio.Record) int { return strings.Compare(a.Name, b.Name) })
	w := cpio.Newc.Writer(f)
	for i, r := range records {
		r.Ino = uint64(i + 1) // equal numbers would be taken for hard links
		require.NoError(t, w.WriteRecord(r))
	}
	require.NoError(t, cpio.WriteTrailer(w))
	return g
}

// unpack takes files out of the image's root. It needs no privileges.
func unpack(t *testing.T, to string, patterns ...string) {
	t.Helper()
	image := os.Getenv("FIRSTLIGHT_IMAGE")
	if image == "" {
		image = "../../../build/firstlight.img"
	}
	f, err := os.Open(image)
	require.NoError(t, err, "no image; `firstlight build` makes it")
	defer f.Close()
	table, err := gpt.ReadPrimary(f)
	require.NoError(t, err)
	root, ok := table.Find(stick.PartitionRootA)
	require.True(t, ok, "the image has no root")

	args := append([]string{
		"-force", "-no-progress", "-quiet", "-no-xattrs", "-ignore-errors", "-no-exit-code",
		"-offset", fmt.Sprint(root.Offset()), "-dest", to, image,
	}, patterns...)
	out, err := exec.CommandContext(t.Context(), "unsquashfs", args...).CombinedOutput()
	require.NoError(t, err, string(out))
}

func onlyFile(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.Len(t, found, 1, pattern)
	return found[0]
}

// orderModules returns files of modules, each after those that it needs, by depmod's table: NAME: ITS NEEDS, of which the
// last is the first to be loaded (modules.dep(5)).
func orderModules(t *testing.T, table string, wanted []string) (order []string) {
	text, err := os.ReadFile(table)
	require.NoError(t, err)
	needs := map[string][]string{}
	files := map[string]string{}
	for line := range strings.Lines(string(text)) {
		file, rest, _ := strings.Cut(line, ":")
		needs[file] = strings.Fields(rest)
		files[drivers.ModuleName(path.Base(file))] = file
	}

	for _, name := range wanted {
		require.Contains(t, files, name, "the nodes' kernel has no such module")
		all := append([]string{files[name]}, needs[files[name]]...)
		slices.Reverse(all)
		for _, file := range all {
			if !slices.Contains(order, file) {
				order = append(order, file)
			}
		}
	}
	return order
}

// requireStatic: the machine has no libraries.
func requireStatic(t *testing.T, program string) {
	f, err := elf.Open(program)
	require.NoError(t, err)
	defer f.Close()
	isDynamic := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	require.False(t, isDynamic, "the tests' program needs libraries; set CGO_ENABLED=0")
}

// run starts the machine, and sees a test in it pass.
func (g guest) run(t *testing.T, name, kernel string) {
	const deadline = time.Hour // ends a run that hangs
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	args := []string{
		"--library-path", filepath.Join(g.layer, "usr/lib/x86_64-linux-gnu"), filepath.Join(g.layer, "usr/bin/qemu-system-x86_64"),
		"-L", filepath.Join(g.layer, "usr/share/seabios"), "-L", filepath.Join(g.layer, "usr/share/qemu"),
		"-machine", "q35,kernel-irqchip=split", "-device", "intel-iommu,intremap=on", "-accel", "tcg,thread=multi",
		"-smp", "2", "-m", "1024", "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", g.kernel, "-initrd", g.initramfs,
		"-append", "console=ttyS0 panic=-1 " + kernel + " -- -test.v -test.run=^" + name + "$",
	}
	for i := range 2 {
		args = append(args,
			"-netdev", fmt.Sprintf("hubport,id=port%d,hubid=0", i),
			"-device", fmt.Sprintf("pcie-root-port,id=slot%[1]d,chassis=%[1]d,slot=%[1]d", i+1),
			"-device", fmt.Sprintf("igb,netdev=port%d,bus=slot%d,romfile=,mac=52:54:00:00:01:0%[1]d", i, i+1))
	}

	var console bytes.Buffer
	c := exec.CommandContext(ctx, filepath.Join(g.layer, "usr/lib64/ld-linux-x86-64.so.2"), args...)
	c.Stdout, c.Stderr = &console, &console
	err := c.Run()
	t.Log(console.String())
	require.NoError(t, err)
	require.Contains(t, console.String(), "--- PASS: "+name+" ")
}
