package bench_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/u-root/u-root/pkg/cpio"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/image/lab/testbed/sandbox"
)

// writes is how often the node image is written by either; the row is their median.
const writes = 3

// agentScript has the agent of the ramdisk do its step write_image: load an image, check its digest, write
// it to a disk. It prints the seconds.
const agentScript = `import sys, time
from oslo_config import cfg
from ironic_python_agent import config
from ironic_python_agent.extensions import standby
cfg.CONF([], project='ironic-python-agent')
url, digest, disk = sys.argv[1:]
image = {'id': 'bench', 'urls': [url], 'os_hash_algo': 'sha256', 'os_hash_value': digest, 'disk_format': 'raw'}
class Nothing:
    def __getattr__(self, name):
        return lambda *args, **more: None
standby.disk_utils = Nothing() # the partitions of a file need no second look
standby.utils.execute = lambda *args, **more: ('', '')
step = standby.StandbyExtension(None)
step.partition_uuids = {}
began = time.monotonic()
step._stream_raw_image_onto_device(image, disk)
print(time.monotonic() - began)
`

// ddScript is what people do by hand: the same image, its digest taken on the way, zeros left out.
const ddScript = `set -o pipefail
curl -sSf "$0" | tee >(sha256sum >&2) | dd bs=1M conv=sparse,notrunc,fsync iflag=fullblock status=none of="$1"`

// BenchmarkDisk measures how fast the nodes' system comes from HTTP onto a disk, by the agent of the ramdisk and by
// dd, natively; and how large the ramdisk is.
func BenchmarkDisk(b *testing.B) {
	dir := b.TempDir()
	bench.Run(b, "metal-disk", func(ctx context.Context) ([]bench.Row, error) {
		var s bench.Series
		if err := measureDisk(ctx, &s, dir); err != nil {
			return nil, err
		}
		written := bench.Row{
			Name: "metal/disk-write-agent",
			Unit: "s",
			Ours: s.Median("agent"),
			Note: fmt.Sprintf("the nodes' system from HTTP to a file, its sha256 taken; natively, median of %d; "+
				"the peer is curl, sha256sum and sparse dd", writes),
		}
		return []bench.Row{
			{
				Name: "metal/ramdisk-size",
				Unit: "MiB",
				Ours: s.Median("size"),
				Note: "kernel's modules, firmware and agent, packed",
			},
			written.Less("dd", s.Median("dd"), 0),
		}, nil
	})
}

func measureDisk(ctx context.Context, s *bench.Series, dir string) (err error) {
	root, err := sandbox.RootTree()
	if err != nil {
		return err
	}
	programs, err := sandbox.BuildPrograms(ctx, dir)
	if err != nil {
		return err
	}
	appliance, err := sandbox.Start(ctx, sandbox.Config{
		Name:    "bench-disk",
		Root:    root,
		Dir:     filepath.Join(dir, "disk"),
		Manager: programs.Manager,
		Log:     os.Stderr,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, appliance.Close()) }()
	const system = "/usr/share/firstlight/images/os/debian-13.raw"
	ramdisk, image := filepath.Join(dir, "initramfs"), filepath.Join(dir, "system.raw")
	if err := errors.Join(appliance.Assemble("/usr/share/firstlight/ramdisk/initramfs", ramdisk), appliance.Assemble(system, image)); err != nil {
		return err
	}
	info, err := os.Stat(ramdisk)
	if err != nil {
		return err
	}
	s.Add("size", float64(info.Size())/(1<<20))
	sum, err := os.ReadFile(appliance.Path(system + ".sha256"))
	if err != nil {
		return err
	}
	digest, _, _ := strings.Cut(string(sum), " ")
	tree := filepath.Join(dir, "ramdisk")
	if err := unpackInitramfs(ramdisk, tree); err != nil {
		return fmt.Errorf("unpack ramdisk: %w", err)
	}
	url, stop, err := serve(image)
	if err != nil {
		return err
	}
	defer stop()
	size, err := os.Stat(image)
	if err != nil {
		return err
	}
	// The agent reads its parameters from the kernel's command line.
	for name, text := range map[string]string{"bench.py": agentScript, "proc/cmdline": ""} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for range writes {
		target, err := makeBlankDisk(tree, size.Size())
		if err != nil {
			return err
		}
		out, err := runOutput(exec.CommandContext(ctx, "chroot", tree, "python3", "/bench.py", url, digest, "/disk"))
		if err != nil {
			return err
		}
		var seconds float64
		if _, err := fmt.Sscan(out[strings.LastIndexByte(strings.TrimSpace(out), '\n')+1:], &seconds); err != nil {
			return fmt.Errorf("read what the agent says: %w: %s", err, out)
		}
		s.Add("agent", seconds)
		if target, err = makeBlankDisk(tree, size.Size()); err != nil {
			return err
		}
		began := time.Now()
		if _, err := runOutput(exec.CommandContext(ctx, "bash", "-c", ddScript, url, target)); err != nil {
			return err
		}
		s.Add("dd", time.Since(began).Seconds())
	}
	return nil
}

// makeBlankDisk makes the disk anew.
func makeBlankDisk(tree string, size int64) (string, error) {
	path := filepath.Join(tree, "disk")
	if err := os.RemoveAll(path); err != nil {
		return "", err
	}
	return path, errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, size))
}

func runOutput(cmd *exec.Cmd) (string, error) {
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd.Path, err, complaints.String())
	}
	return string(out), nil
}

// unpackInitramfs unpacks a ramdisk as the kernel would: an archive as it is, and behind it a compressed one.
func unpackInitramfs(file, dir string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	at := bytes.Index(text, []byte("TRAILER!!!\x00"))
	if at < 0 {
		return errors.New("the ramdisk does not begin with an archive")
	}
	packed := bytes.TrimLeft(text[at+len("TRAILER!!!"):], "\x00")
	rest, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	defer rest.Close()
	plain, err := io.ReadAll(rest)
	if err != nil {
		return err
	}
	for _, archive := range [][]byte{text, plain} {
		err := cpio.ForEachRecord(cpio.Newc.Reader(bytes.NewReader(archive)), func(r cpio.Record) error {
			return cpio.CreateFileInRoot(r, dir, false)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// serve serves one file on loopback until stop is called.
func serve(file string) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })}
	go func() { _ = server.Serve(listener) }()
	return fmt.Sprintf("http://%s/image.raw", listener.Addr()), func() { server.Close() }, nil
}
