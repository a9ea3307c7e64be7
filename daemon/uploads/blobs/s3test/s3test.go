// Package s3test starts S3 servers for tests and measurements: the appliance's own as a
// process, compiled from its module, and one in memory that is somebody else's view of the
// protocol and needs nothing.
package s3test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/assets/freeport"
	"firstlight.dev/firstlight/daemon/uploads/blobs"
	"firstlight.dev/firstlight/daemon/uploads/blobs/s3"
	"firstlight.dev/firstlight/image/lab/process"
)

// Kind is what FIRSTLIGHT_TEST must name for tests that mount a file system, or compile and run an S3 server. All is for
// those that take minutes or much disk.
const (
	Kind = "store"
	All  = "store-all"
)

// IsEnabled tells whether FIRSTLIGHT_TEST names a kind of tests.
func IsEnabled(kind string) bool {
	return strings.Contains(","+os.Getenv("FIRSTLIGHT_TEST")+",", ","+kind+",")
}

const (
	accessKey = "lab-access"
	secretKey = "lab-secret-key-of-no-worth"
)

// gatewayConfig is how a client reaches a store of the lab.
func gatewayConfig(endpoint string) s3.Config {
	return s3.Config{Endpoint: endpoint, AccessKey: accessKey, SecretKey: secretKey, RetryTimeout: 20 * time.Second}
}

// StartInMemory starts a store in this process. wrap, which may be nil, is put before it and may
// answer in its place.
func StartInMemory(t testing.TB, wrap func(http.Handler) http.Handler) s3.Config {
	t.Helper()
	handler := gofakes3.New(
		s3mem.New(), gofakes3.WithTimeSkewLimit(0), gofakes3.WithLogger(gofakes3.DiscardLog()),
	).Server()
	if wrap != nil {
		handler = wrap(handler)
	}

	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it says so whenever a client hangs up
	s.Start()
	t.Cleanup(s.Close)
	return gatewayConfig(s.URL)
}

// OtherStore names, in the environment, the S3 endpoint that Other is; STORE_ACCESS_KEY and
// STORE_SECRET_KEY are its keys.
const OtherStore = "FIRSTLIGHT_TEST_STORE"

// ExternalStore is a store that runs already, if there is one to try. Its three buckets are emptied.
func ExternalStore(t testing.TB) s3.Config {
	t.Helper()
	endpoint := os.Getenv(OtherStore)
	if endpoint == "" {
		t.Skip("tries a store that runs already; set " + OtherStore + " to its endpoint, and STORE_ACCESS_KEY and STORE_SECRET_KEY")
	}

	c := gatewayConfig(endpoint)
	c.AccessKey, c.SecretKey = os.Getenv("STORE_ACCESS_KEY"), os.Getenv("STORE_SECRET_KEY")
	s, err := s3.New(c)
	if err == nil {
		err = emptyBuckets(t.Context(), s)
	}

	if err != nil {
		t.Fatal(err)
	}

	return c
}

func emptyBuckets(ctx context.Context, s *s3.Client) error {
	for _, c := range artifact.Collections() {
		bucket := c.Bucket()
		if err := s.MakeBucket(ctx, bucket); err != nil {
			return err
		}

		var names []string
		if err := s.List(
			ctx, bucket, "", func(o blobs.Object) error { names = append(names, o.Name); return nil },
		); err != nil {
			return err
		}

		for _, name := range names {
			if err := s.Remove(ctx, bucket, name); err != nil {
				return err
			}
		}

		uploads, err := s.PendingUploads(ctx, bucket)
		if err != nil {
			return err
		}

		for _, u := range uploads {
			if err := s.Abort(ctx, bucket, u.Object, u.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// PendingUploads names the unfinished uploads that a backend has in a bucket.
func PendingUploads(ctx context.Context, s blobs.Backend, bucket string) (names []string, err error) {
	if f, is := s.(*blobs.Folder); is {
		files, err := os.ReadDir(filepath.Join(f.Dir, bucket, ".firstlight", "uploads"))
		for _, file := range files {
			names = append(names, file.Name())
		}
		return names, err
	}

	all, err := s.(*s3.Client).PendingUploads(ctx, bucket)
	for _, u := range all {
		names = append(names, u.ID)
	}

	return names, err
}

// Gateway is an S3 server as a process over a folder.
type Gateway struct {
	Config  s3.Config
	Dir     string
	program string
	listen  string
	log     *os.File

	mu    sync.Mutex
	child *process.Child
}

// Program compiles that server, which takes two minutes once and a second from then on, and returns its path.
var Program = sync.OnceValues(func() (string, error) {
	top, err := bench.FindTop()
	if err != nil {
		return "", err
	}

	cache := os.Getenv("FIRSTLIGHT_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find cache: %w", err)
		}
		cache = filepath.Join(dir, "firstlight")
	}

	out := filepath.Join(cache, "lab", "gateway")
	cmd := exec.Command("go", "build", "-trimpath", "-o", out, ".")
	cmd.Dir = filepath.Join(top, "daemon", "uploads", "blobs", "s3test", "gateway")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile store: %w: %s", err, text)
	}

	return out, nil
})

// StartGateway starts the server over dir, on a port of 127.0.0.1 that is free.
// Its log goes to a file beside dir.
func StartGateway(ctx context.Context, dir string) (*Gateway, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder of store: %w", err)
	}

	port, err := freeport.FindTCP()
	if err != nil {
		return nil, err
	}

	listen := fmt.Sprintf("127.0.0.1:%d", port)
	file, err := os.OpenFile(dir+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log of store: %w", err)
	}

	g := &Gateway{
		Config:  gatewayConfig("http://" + listen),
		Dir:     dir,
		program: program,
		listen:  listen,
		log:     file,
	}
	return g, g.Start(ctx)
}

// NewGateway is StartGateway for a test, if its kind was asked for.
func NewGateway(t testing.TB) *Gateway {
	t.Helper()
	if !IsEnabled(Kind) {
		t.Skip("compiles and runs an S3 server; set FIRSTLIGHT_TEST=" + Kind)
	}

	g, err := StartGateway(t.Context(), filepath.Join(t.TempDir(), "store"))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(g.Kill)
	return g
}

// SmallDisk mounts a file system of so much memory ("16m"); the test is skipped where it
// may not.
func SmallDisk(t testing.TB, size string) (dir string) {
	t.Helper()
	if !IsEnabled(Kind) || os.Getuid() != 0 {
		t.Skip("mounts a small file system, which needs root; set FIRSTLIGHT_TEST=" + Kind)
	}

	dir = filepath.Join(t.TempDir(), "small")
	if err := errors.Join(os.Mkdir(dir, 0o755), syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size)); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Start starts it, and returns when it answers.
func (g *Gateway) Start(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	cmd := exec.Command(g.program, "-listen", g.listen, "-dir", g.Dir)
	cmd.Env = append(os.Environ(), "STORE_ACCESS_KEY="+accessKey, "STORE_SECRET_KEY="+secretKey)
	cmd.Stdout, cmd.Stderr = g.log, g.log
	child, err := process.Start(cmd)
	if err != nil {
		return err
	}

	g.child = child
	for {
		response, err := http.Get(g.Config.Endpoint + "/health")
		if err == nil {
			response.Body.Close()
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for store: %w: %w", ctx.Err(), err)
		case <-child.Done():
			return fmt.Errorf("wait for store: it ended; see %s", g.log.Name())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Kill ends it at once, as kill -9 does.
func (g *Gateway) Kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.child != nil {
		g.child.Kill()
		g.child = nil
	}
}
