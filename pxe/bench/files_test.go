package bench_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/pxe"
	"firstlight.dev/firstlight/pxe/bootfile"
	"firstlight.dev/firstlight/pxe/bootserver"
	"firstlight.dev/firstlight/pxe/boottrace"
	"firstlight.dev/firstlight/pxe/metrics"
	"firstlight.dev/firstlight/pxe/tftp"
)

const (
	serveFilesArg = "serve-files" // this program as the TFTP and HTTP server, in its namespace
	httpRuns      = 25            // half a second each, and which core a process is put on decides much
	tftpRuns      = 15            // a second each, and the scheduler has much to say
	imageBytes    = 1 << 30
	programBytes  = 16 << 20
	memoryClients = 64
	memoryLimit   = 64.0 // MB
	ourTFTP       = "172.22.0.1:69"
	ourHTTP       = "172.22.0.1:8080"
)

// allowAll lets every machine boot.
type allowAll struct{}

func (allowAll) Boot(context.Context, pxe.Machine) pxe.Boot {
	return pxe.Boot{Action: pxe.ActionInspect}
}

// serveFiles is the measured server: as in the product, with its log, record and metrics.
func serveFiles(ctx context.Context, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		return err
	}
	web := filepath.Join(dir, "web")
	files, err := bootfile.OpenSet([]string{web}, nil)
	if err != nil {
		return err
	}
	defer files.Close()
	root, err := os.OpenRoot(web)
	if err != nil {
		return err
	}
	defer root.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	counters, book := metrics.New(prometheus.NewRegistry()), &boottrace.Recorder{}
	// All clients of a measurement have one address.
	t := &tftp.Server{Addr: netip.MustParseAddrPort(ourTFTP), MaxPerClient: memoryClients, Files: files, Booter: allowAll{}, Record: book, Metrics: counters, Log: log}
	h := &bootserver.Server{Addr: netip.MustParseAddrPort(ourHTTP), Base: "http://" + ourHTTP, Files: files, Mounts: []bootserver.Mount{{Path: "/", Root: root}},
		Booter: allowAll{}, Record: book, Metrics: counters, Log: log}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return t.Run(ctx) })
	group.Go(func() error { return h.Run(ctx) })
	return group.Wait()
}

// fileFixture is the files, the namespaces and our server in them.
type fileFixture struct {
	dir string
	p   pair
}

// fileMeasurement measures servers of files.
type fileMeasurement func(context.Context, fileFixture) ([]bench.Row, error)

// runWithFiles measures with a fileFixture, which it removes afterwards.
func runWithFiles(b *testing.B, name string, measure fileMeasurement) {
	dir := b.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // peers drop their privileges
		b.Fatal(err)
	}
	bench.Run(b, name, func(ctx context.Context) ([]bench.Row, error) { return withFiles(ctx, name, dir, measure) })
}

func withFiles(ctx context.Context, tag, dir string, measure fileMeasurement) ([]bench.Row, error) {
	web := filepath.Join(dir, "web")
	if err := os.MkdirAll(web, 0o755); err != nil {
		return nil, err
	}
	for name, size := range map[string]int64{"image": imageBytes, "program": programBytes} {
		if err := os.WriteFile(filepath.Join(web, name), nil, 0o644); err != nil {
			return nil, err
		}
		if err := os.Truncate(filepath.Join(web, name), size); err != nil {
			return nil, err
		}
	}
	p, err := newPair(ctx, tag)
	if err != nil {
		return nil, err
	}
	defer p.remove()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stop, err := startServer(ctx, p.server, nil, self, serveFilesArg, dir)
	if err != nil {
		return nil, err
	}
	defer stop()
	return measure(ctx, fileFixture{dir, p})
}

// BenchmarkHTTP compares with nginx: sendfile on both sides, one and eight streams.
func BenchmarkHTTP(b *testing.B) {
	runWithFiles(b, "http", func(ctx context.Context, b fileFixture) ([]bench.Row, error) {
		conf := filepath.Join(b.dir, "nginx.conf")
		text := fmt.Sprintf("daemon off; worker_processes auto; pid %[1]s/nginx.pid; error_log %[1]s/nginx.err; events {}\nhttp { access_log %[1]s/nginx.log; sendfile on; tcp_nopush on; server { listen 172.22.0.1:8081; root %[1]s/web; } }\n", b.dir)
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			return nil, err
		}
		stop, err := startServer(ctx, b.p.server, nil, "nginx", "-c", conf)
		if err != nil {
			return nil, err
		}
		defer stop()
		var rows []bench.Row
		for _, streams := range []int{1, 8} {
			values, err := measureInTurns(ctx, func(ctx context.Context, server int) (float64, error) {
				return httpSpeed(ctx, b.p, []string{ourHTTP, "172.22.0.1:8081"}[server], streams)
			}, 2, httpRuns)
			if err != nil {
				return nil, err
			}
			r := bench.Row{
				Name: fmt.Sprintf("http-1GiB-x%d", streams),
				Unit: "MB/s",
				Ours: values[0],
				Note: "both by sendfile from the page cache, with an access log; ours also keeps a deadline per MiB",
			}
			rows = append(rows, r.More("nginx", values[1], 0.9))
		}
		return rows, nil
	})
}

func httpSpeed(ctx context.Context, p pair, server string, streams int) (float64, error) {
	begun := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for range streams {
		group.Go(func() error {
			out, err := commandIn(ctx, p.client, "curl", "-sSf", "-o", "/dev/null", "http://"+server+"/image").CombinedOutput()
			if err != nil {
				return fmt.Errorf("curl %s: %w: %s", server, err, out)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return float64(streams) * imageBytes / 1e6 / time.Since(begun).Seconds(), nil
}

// BenchmarkTFTP compares with dnsmasq and atftpd; the client is atftp.
func BenchmarkTFTP(b *testing.B) {
	runWithFiles(b, "tftp", func(ctx context.Context, b fileFixture) ([]bench.Row, error) {
		web := filepath.Join(b.dir, "web")
		peers := []struct {
			name, addr string
			args       []string
		}{
			{"dnsmasq", "172.22.0.3", []string{"dnsmasq", "-k", "--port=0", "--enable-tftp", "--tftp-root=" + web, "--listen-address=172.22.0.3", "--bind-interfaces", "--user=root", "--conf-file=/dev/null"}},
			{"atftpd", "172.22.0.4", []string{"atftpd", "--daemon", "--no-fork", "--bind-address", "172.22.0.4", "--user", "root.root", web}},
		}
		addrs, names := []string{"172.22.0.1"}, []string{"firstlight"}
		for _, peer := range peers {
			path, err := peerProgram(ctx, peer.args[0], b.dir)
			if err != nil {
				return nil, err
			}
			if out, err := commandIn(ctx, b.p.server, "ip", "addr", "add", peer.addr+"/16", "dev", "srv0").CombinedOutput(); err != nil {
				return nil, fmt.Errorf("add address: %w: %s", err, out)
			}
			stop, err := startServer(ctx, b.p.server, nil, path, peer.args[1:]...)
			if err != nil {
				return nil, err
			}
			defer stop()
			addrs, names = append(addrs, peer.addr), append(names, peer.name)
		}
		var rows []bench.Row
		for _, block := range []int{512, 1468} {
			values, err := measureInTurns(ctx, func(ctx context.Context, server int) (float64, error) {
				return tftpSpeed(ctx, b.p, addrs[server], block)
			}, len(addrs), tftpRuns)
			if err != nil {
				return nil, err
			}
			for i := 1; i < len(addrs); i++ {
				bar := 0.0
				if names[i] == "dnsmasq" {
					bar = 1
				}
				r := bench.Row{
					Name: fmt.Sprintf("tftp-%d-%s", block, names[i]),
					Unit: "MB/s",
					Ours: values[0],
					Note: "one client, atftp, one block per ACK",
				}
				rows = append(rows, r.More(names[i], values[i], bar))
			}
		}
		return rows, nil
	})
}

// peerProgram finds a program, or takes it out of its Debian package: the packages of
// TFTP servers exclude each other.
func peerProgram(ctx context.Context, name, dir string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", "apt-get -o APT::Sandbox::User=root download "+name+" && dpkg-deb -x "+name+"_*.deb .")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack %s: %w: %s", name, err, out)
	}
	return filepath.Join(dir, "usr/sbin", name), nil
}

func tftpSpeed(ctx context.Context, p pair, server string, block int) (float64, error) {
	begun := time.Now()
	out, err := commandIn(ctx, p.client, "atftp", "--option", fmt.Sprintf("blksize %d", block), "-g", "-r", "program", "-l", "/dev/null", server).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("atftp %s: %w: %s", server, err, out)
	}
	return programBytes / 1e6 / time.Since(begun).Seconds(), nil
}

// BenchmarkMemory loads us with 64 machines at once, half by TFTP and half by HTTP, and reads
// the most memory that was ever resident.
func BenchmarkMemory(b *testing.B) {
	runWithFiles(b, "memory", func(ctx context.Context, b fileFixture) ([]bench.Row, error) {
		var all sync.WaitGroup
		errs := make(chan error, memoryClients)
		for i := range memoryClients {
			all.Go(func() {
				args := []string{"curl", "-sSf", "-o", "/dev/null", "-r", "0-67108863", "http://" + ourHTTP + "/image"}
				if i%2 == 1 {
					args = []string{"atftp", "--option", "blksize 1468", "--option", "windowsize 16", "-g", "-r", "program", "-l", "/dev/null", "172.22.0.1"}
				}
				if out, err := commandIn(ctx, b.p.client, args[0], args[1:]...).CombinedOutput(); err != nil {
					errs <- fmt.Errorf("%s: %w: %s", args[0], err, out)
				}
			})
		}
		all.Wait()
		close(errs)
		if err := <-errs; err != nil {
			return nil, err
		}
		text, err := os.ReadFile(filepath.Join(b.dir, "pid"))
		if err != nil {
			return nil, err
		}
		pid, err := strconv.Atoi(string(text))
		if err != nil {
			return nil, err
		}
		peak, err := bench.Memory(pid, bench.PeakResident)
		if err != nil {
			return nil, err
		}
		r := bench.Row{
			Name: "memory-64-clients",
			Unit: "MB",
			Ours: peak / 1e6,
			Note: "most ever resident (VmHWM) of TFTP and HTTP with 32 clients each at once; DHCP is not in this process",
		}
		return []bench.Row{r.Less("limit", memoryLimit, 1)}, nil
	})
}

// measureInTurns measures the servers in turns, so that other load on the machine hits all of
// them, and returns the median of each.
func measureInTurns(ctx context.Context, one func(ctx context.Context, server int) (float64, error), servers, runs int) ([]float64, error) {
	values := make([][]float64, servers)
	for range runs {
		for server := range servers {
			value, err := one(ctx, server)
			if err != nil {
				return nil, err
			}
			values[server] = append(values[server], value)
		}
	}
	var medians []float64
	for _, v := range values {
		medians = append(medians, bench.Median(v))
	}
	return medians, nil
}
