package bench_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/bench"
)

// syncDisks lets no figure pay for the writes of the one before.
func syncDisks() { unix.Sync() }

// storeClient is a client of the store itself.
func (b *fixture) storeClient() (*minio.Client, error) {
	return minio.New(strings.TrimPrefix(b.store.Config.Endpoint, "http://"), &minio.Options{Creds: credentials.NewStaticV4(b.store.Config.AccessKey, b.store.Config.SecretKey, ""),
		Region: "us-east-1", BucketLookup: minio.BucketLookupPath})
}

// measureUpload compares with the store alone, by one request, by parts one at a time and by minio-go's four,
// and with nginx's PUT.
func measureUpload(ctx context.Context, b *fixture) ([]bench.Row, error) {
	client, err := b.storeClient()
	if err != nil {
		return nil, err
	}
	direct := func(threads uint) error {
		_, err := client.FPutObject(ctx, "binary", "bare", b.file, minio.PutObjectOptions{PartSize: 16 << 20, NumThreads: threads, DisableContentSha256: true})
		return err
	}
	verified := func() error {
		_, err := client.FPutObject(ctx, "binary", "bare", b.file, minio.PutObjectOptions{DisableMultipart: true})
		return err
	}
	bare := func() error { return client.RemoveObject(ctx, "binary", "bare", minio.RemoveObjectOptions{}) }
	signed, err := client.PresignedPutObject(ctx, "binary", "bare", time.Hour)
	if err != nil {
		return nil, err
	}
	put := func(url string) func() error {
		return func() error {
			_, err := b.curl(ctx, "--fail", "--header", noToken, "--upload-file", b.file, url)
			return err
		}
	}
	nginx := func() error {
		_, err := b.curl(ctx, "--fail", "--upload-file", b.file, "https://"+nginxAddr+"/up")
		return err
	}
	rates, err := b.inTurn("upload", []method{
		{name: "ours", before: func() error { return b.announce(ctx, "up") }, do: func() error { return b.send(ctx, "up") }, after: func() error { return b.remove(ctx, "up") }},
		{name: "store-sha256", do: verified, after: bare},
		{name: "store-put", do: put(signed.String()), after: bare},
		{name: "store-tls", do: put("https://" + proxyAddr + signed.RequestURI()), after: bare},
		{name: "store-1", do: func() error { return direct(1) }, after: bare},
		{name: "store-4", do: func() error { return direct(4) }, after: bare},
		{name: "nginx", do: nginx, after: func() error { return os.Remove(filepath.Join(b.dir, "web", "up")) }},
	})
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("medians of %d, load %s; ours: TLS, token, sha256, resumable at any byte, synced before the answer, by curl; ", runs, bench.LoadAverage())
	return compareRows("artifact/upload-1GiB", rates, []peer{
		{"store-sha256", 0.7, note + "store-sha256: one PUT to the same store by minio-go, plain HTTP, whose sha256 the store checks, synced"},
		{"store-put", 0.7, note + "store-put: one PUT by curl, plain HTTP, which nobody checks, synced"},
		{"store-tls", 0.7, note + "store-tls: the same by TLS, which nginx does for the store"},
		{"store-1", 0.7, note + "store-1: the same store by minio-go, parts of 16 MiB one after the other, plain HTTP, CRC-32C, synced"},
		{"store-4", 0.7, note + "store-4: the same, four parts at a time"},
		{"nginx", 0, note + "nginx: PUT by curl with TLS; no sync, no digest, nothing to go on from"},
	}), nil
}

// downloadSources is what is downloaded: the artifact, by the agent and by the store, and the same bytes by nginx.
type downloadSources struct{ agent, store, proxy, nginx string }

func (b *fixture) serve(ctx context.Context) (s downloadSources, undo func(), err error) {
	if err := b.announce(ctx, "down"); err != nil {
		return s, nil, err
	}
	if err := b.send(ctx, "down"); err != nil {
		return s, nil, err
	}
	beside := filepath.Join(b.dir, "web", "down")
	if err := os.Link(b.file, beside); err != nil {
		return s, nil, err
	}
	client, err := b.storeClient()
	if err != nil {
		return s, nil, err
	}
	signed, err := client.PresignedGetObject(ctx, "binary", key("down").Object(), time.Hour, nil)
	if err != nil {
		return s, nil, err
	}
	s = downloadSources{"https://" + agentAddr + key("down").ContentPath(), signed.String(), "https://" + proxyAddr + signed.RequestURI(), "https://" + nginxAddr + "/down"}
	return s, func() { _, _ = b.remove(ctx, "down"), os.Remove(beside) }, nil // the fixture goes
}

// measureDownload compares with the store alone, by TLS and without, and with nginx.
func measureDownload(ctx context.Context, b *fixture) ([]bench.Row, error) {
	s, undo, err := b.serve(ctx)
	if err != nil {
		return nil, err
	}
	defer undo()
	get := func(args ...string) func() error {
		return func() error {
			_, err := b.curl(ctx, append([]string{"--fail", "--output", "/dev/null"}, args...)...)
			return err
		}
	}
	rates, err := b.inTurn("download", []method{
		{name: "ours", do: get(s.agent)}, {name: "store-tls", do: get(s.proxy)}, {name: "nginx", do: get(s.nginx)}, {name: "store", do: get("--header", noToken, s.store)},
	})
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("medians of %d from the page cache, load %s; by curl, not kept; ", runs, bench.LoadAverage())
	return compareRows("artifact/download-1GiB", rates, []peer{
		{"store-tls", 0.7, note + "all by TLS; store-tls: the same store, nginx does TLS for it"},
		{"nginx", 0, note + "nginx: the file itself, by TLS"},
		{"store", 0, note + "store: the same store by plain HTTP (sendfile)"},
	}), nil
}

// measureFetch compares what ends as a file on the disk whose sha256 is known to be right.
func measureFetch(ctx context.Context, b *fixture) ([]bench.Row, error) {
	s, undo, err := b.serve(ctx)
	if err != nil {
		return nil, err
	}
	defer undo()
	c, err := b.client()
	if err != nil {
		return nil, err
	}
	copied := filepath.Join(b.dir, "fetched")
	remove := func() error { return os.Remove(copied) }
	ours := func() error {
		_, err := c.Fetch(ctx, key("down"), copied, func(string, int64, int64) {})
		return err
	}
	bare := func() error {
		if _, err := b.curl(ctx, "--fail", "--output", copied, "--header", noToken, s.store); err != nil {
			return err
		}
		return exec.CommandContext(ctx, "sh", "-euc", `sha256sum "$1" >/dev/null; sync "$1"`, "sh", copied).Run()
	}
	rates, err := b.inTurn("fetch", []method{{name: "ours", do: ours, after: remove}, {name: "store", do: bare, after: remove}})
	if err != nil {
		return nil, err
	}
	return compareRows("artifact/fetch-1GiB", rates, []peer{{"store", 0.7, fmt.Sprintf("medians of %d, load %s; a file, synced, its sha256 checked; ours: firstlight artifact get by TLS; "+
		"store: curl by plain HTTP, then sha256sum", runs, bench.LoadAverage())}}), nil
}

// method is one of several ways to do the same.
type method struct {
	name              string
	before, do, after func() error // only do is timed, and need be there
}

// inTurn measures ways one after the other, several times, in MB/s.
func (b *fixture) inTurn(what string, ways []method) (map[string][]float64, error) {
	rates := map[string][]float64{}
	for run := range runs {
		for _, w := range ways {
			var rate float64
			for _, step := range []func() error{w.before, func() (err error) { syncDisks(); rate, err = transferRate(w.do); return err }, w.after} {
				if step == nil {
					continue
				}
				if err := step(); err != nil {
					return nil, fmt.Errorf("%s: %w", w.name, err)
				}
			}
			fmt.Fprintf(os.Stderr, "%s %s run %d: %.0f MB/s\n", what, w.name, run+1, rate)
			rates[w.name] = append(rates[w.name], rate)
		}
	}
	return rates, nil
}

// peer is what ours is compared with: the least ratio that is wanted, 0 for none.
type peer struct {
	name string
	bar  float64
	note string
}

func compareRows(name string, rates map[string][]float64, peers []peer) (all []bench.Row) {
	ours := bench.Median(rates["ours"])
	for _, p := range peers {
		r := bench.Row{Name: name, Unit: "MB/s", Ours: ours, Note: p.note}
		all = append(all, r.More(p.name, bench.Median(rates[p.name]), p.bar))
	}
	return all
}

// measureMemory runs many uploads at once and reads the most memory that the agent ever had
// resident. Scratch files are on disk; their pages in the page cache are the kernel's.
func measureMemory(ctx context.Context, b *fixture) ([]bench.Row, error) {
	before, err := bench.Memory(b.agent.Process.Pid, bench.Resident)
	if err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	failed := make(chan error, many)
	for i := range many {
		name := fmt.Sprintf("many-%d", i)
		if err := b.announce(ctx, name); err != nil {
			return nil, err
		}
		all.Go(func() { failed <- b.send(ctx, name) })
	}
	all.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return nil, err
		}
	}
	peak, err := bench.Memory(b.agent.Process.Pid, bench.PeakResident)
	if err != nil {
		return nil, err
	}
	for i := range many {
		if err := b.remove(ctx, fmt.Sprintf("many-%d", i)); err != nil {
			return nil, err
		}
	}
	const limit = 64.0
	r := bench.Row{Name: fmt.Sprintf("artifact/memory-%dx1GiB", many), Unit: "MB", Ours: peak / 1e6,
		Note: fmt.Sprintf("the most that was resident of firstlightd artifacts (%.0f MB before), of which the program's own pages are a part", before/1e6)}
	return []bench.Row{r.Less("bar", limit, 1)}, nil
}
