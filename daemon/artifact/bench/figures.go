package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sys/unix"

	"firstlight.dev/firstlight/assets/bench"
)

// settle lets no figure pay for the writes of the one before.
func settle() { unix.Sync() }

// bare is a client of the store itself.
func (b *bed) bare() (*minio.Client, error) {
	return minio.New(strings.TrimPrefix(b.store.Config.Endpoint, "http://"), &minio.Options{Creds: credentials.NewStaticV4(b.store.Config.AccessKey, b.store.Config.SecretKey, ""),
		Region: "us-east-1", BucketLookup: minio.BucketLookupPath})
}

// upload compares with the store alone, by one part at a time and by minio-go's four, and
// with nginx's PUT.
func upload(ctx context.Context, b *bed) ([]bench.Row, error) {
	client, err := b.bare()
	if err != nil {
		return nil, err
	}
	direct := func(threads uint) error {
		_, err := client.FPutObject(ctx, "binary", "bare", b.file, minio.PutObjectOptions{PartSize: 16 << 20, NumThreads: threads, DisableContentSha256: true})
		return err
	}
	ways := []struct {
		name     string
		do, undo func() error
	}{
		{"ours", func() error { return b.send(ctx, "up") }, func() error { return b.remove(ctx, "up") }},
		{"store-1", func() error { return direct(1) }, func() error { return client.RemoveObject(ctx, "binary", "bare", minio.RemoveObjectOptions{}) }},
		{"store-4", func() error { return direct(4) }, func() error { return client.RemoveObject(ctx, "binary", "bare", minio.RemoveObjectOptions{}) }},
		{"nginx", func() error {
			_, err := b.curl(ctx, "--fail", "--upload-file", b.file, "https://"+nginxAddr+"/up")
			return err
		}, func() error { return os.Remove(filepath.Join(b.dir, "web", "up")) }},
	}
	rates := map[string][]float64{}
	for run := range runs {
		for _, w := range ways {
			if w.name == "ours" {
				if err := b.announce(ctx, "up"); err != nil {
					return nil, err
				}
			}
			settle()
			rate, err := timed(w.do)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			if err := w.undo(); err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			fmt.Fprintf(os.Stderr, "upload %s run %d: %.0f MB/s\n", w.name, run+1, rate)
			rates[w.name] = append(rates[w.name], rate)
		}
	}
	ours := bench.Median(rates["ours"])
	const what = "ours: TLS, token, sha256, resumable at any octet, synced before the answer, by curl; "
	var rows []bench.Row
	for _, p := range []struct {
		peer string
		bar  float64
		note string
	}{
		{"store-1", 0.7, "the same store by minio-go, parts of 16 MiB one after the other, plain HTTP, CRC-32C, synced"},
		{"store-4", 0, "the same, four parts at a time"},
		{"nginx", 0, "PUT by curl with TLS; no sync, no digest, nothing to go on from"},
	} {
		v := bench.Median(rates[p.peer])
		rows = append(rows, bench.Row{Name: "artifact/upload-1GiB", Unit: "MB/s", Ours: ours, Peer: p.peer, Value: v, Ratio: ours / v, Bar: p.bar,
			Note: fmt.Sprintf("medians of %d, load %s; %s%s: %s", runs, bench.Load(), what, p.peer, p.note)})
	}
	return rows, nil
}

// download compares with the store alone and with nginx.
func download(ctx context.Context, b *bed) ([]bench.Row, error) {
	if err := b.announce(ctx, "down"); err != nil {
		return nil, err
	}
	if err := b.send(ctx, "down"); err != nil {
		return nil, err
	}
	defer func() { _ = b.remove(ctx, "down") }() // the bed goes
	if err := os.Link(b.file, filepath.Join(b.dir, "web", "down")); err != nil {
		return nil, err
	}
	defer os.Remove(filepath.Join(b.dir, "web", "down"))
	client, err := b.bare()
	if err != nil {
		return nil, err
	}
	signed, err := client.PresignedGetObject(ctx, "binary", key("down").Object(), time.Hour, nil)
	if err != nil {
		return nil, err
	}
	ways := []struct {
		name string
		args []string
	}{
		{"ours", []string{"https://" + agentAddr + key("down").ContentPath()}},
		{"store", []string{"--header", "Authorization:", signed.String()}},
		{"nginx", []string{"https://" + nginxAddr + "/down"}},
	}
	rates := map[string][]float64{}
	for run := range runs {
		for _, w := range ways {
			settle()
			rate, err := timed(func() error {
				_, err := b.curl(ctx, append([]string{"--fail", "--output", "/dev/null"}, w.args...)...)
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			fmt.Fprintf(os.Stderr, "download %s run %d: %.0f MB/s\n", w.name, run+1, rate)
			rates[w.name] = append(rates[w.name], rate)
		}
	}
	ours := bench.Median(rates["ours"])
	var rows []bench.Row
	for _, peer := range []string{"store", "nginx"} {
		v := bench.Median(rates[peer])
		rows = append(rows, bench.Row{Name: "artifact/download-1GiB", Unit: "MB/s", Ours: ours, Peer: peer, Value: v, Ratio: ours / v,
			Note: fmt.Sprintf("medians of %d from the page cache, load %s; ours and nginx by TLS, the store by plain HTTP; one client, curl", runs, bench.Load())})
	}
	return rows, nil
}

// memory runs many uploads at once and reads the most memory that the agent ever had
// resident. Scratch files are on disk; their pages in the page cache are the kernel's.
func memory(ctx context.Context, b *bed) ([]bench.Row, error) {
	before, err := b.resident("VmRSS:")
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
	peak, err := b.resident("VmHWM:")
	if err != nil {
		return nil, err
	}
	for i := range many {
		if err := b.remove(ctx, fmt.Sprintf("many-%d", i)); err != nil {
			return nil, err
		}
	}
	const limit = 64.0
	r := bench.Row{Name: fmt.Sprintf("artifact/memory-%dx1GiB", many), Unit: "MB", Ours: peak,
		Note: fmt.Sprintf("the most that was resident of firstlightd artifacts (%.0f MB before), of which the program's own pages are a part", before)}
	return []bench.Row{r.Less("bar", limit, 1)}, nil
}

// resident reads a line of the agent's status, in MB.
func (b *bed) resident(line string) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.agent.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, after, found := strings.Cut(string(text), line)
	if !found {
		return 0, fmt.Errorf("read %s: %w", line, errNoValue)
	}
	kib, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
	return kib * 1024 / 1e6, err
}
