package sitesource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// fetchBucket reads the objects below a folder. Their revision is the digest of their names and ETags, as that of Flux'
// Buckets is.
func fetchBucket(ctx context.Context, b Bucket, r Request) (Answer, error) {
	client, err := b.client()
	if err != nil {
		return Answer{}, err
	}
	prefix := ""
	if r.Path != "" {
		prefix = r.Path + "/"
	}

	objects, answer, err := list(ctx, client, b.Name, prefix)
	if err != nil || answer.Refusal != "" || answer.Revision == r.Known {
		return answer, err
	}
	var read files
	for _, o := range objects {
		err := read.add(strings.TrimPrefix(o.Key, prefix), o.Size, func() ([]byte, error) { return readObject(ctx, client, b.Name, o) })
		if isRefusal(err) {
			answer.Refusal = err.Error()
			return answer, nil
		}
		if err != nil {
			return Answer{}, fmt.Errorf("read %s: %w", o.Key, err)
		}
	}

	_, after, err := list(ctx, client, b.Name, prefix)
	if err == nil && after.Revision != answer.Revision {
		err = errors.New("the bucket is being written to")
	}
	if answer.Files = read.all; err != nil {
		return Answer{}, err
	}
	if len(answer.Files) == 0 {
		answer.Refusal = describeMissing(r.Path)
	}
	return answer, nil
}

func (b Bucket) client() (*minio.Client, error) {
	u, err := url.Parse(b.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("read endpoint of the bucket: %w", err)
	}
	config, err := newTLS(b.CA)
	if err != nil {
		return nil, err
	}
	return minio.New(u.Host, &minio.Options{
		Creds:        credentials.NewStaticV4(b.AccessKey, b.SecretKey, ""),
		Secure:       u.Scheme == "https",
		Transport:    &http.Transport{TLSClientConfig: config},
		Region:       b.Region,
		BucketLookup: minio.BucketLookupPath,
		MaxRetries:   1,
	})
}

// list finds what is to be read of a bucket, in the order of its names, and its revision.
func list(ctx context.Context, c *minio.Client, bucket, prefix string) (all []minio.ObjectInfo, a Answer, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sum, listed := sha256.New(), 0
	for o := range c.ListObjects(ctx, bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, Answer{}, fmt.Errorf("list bucket %s: %w", bucket, o.Err)
		}
		if listed++; listed > maxListed {
			a.Refusal = describeCrowd(prefix)
			break
		}
		if !isWanted(o.Key) {
			continue
		}
		fmt.Fprintf(sum, "%q %q\n", o.Key, o.ETag)
		all = append(all, o)
		if len(all) > maxFiles {
			a.Refusal = fmt.Sprintf("it has more than %d files *.yaml in folder %q; keep other YAML in another folder", maxFiles, prefix)
			break
		}
	}
	a.Revision = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return all, a, nil
}

func readObject(ctx context.Context, c *minio.Client, bucket string, o minio.ObjectInfo) ([]byte, error) {
	got, err := c.GetObject(ctx, bucket, o.Key, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	defer got.Close()
	text, err := io.ReadAll(io.LimitReader(got, o.Size+1))
	if err == nil && int64(len(text)) != o.Size {
		err = errors.New("it is being written")
	}
	return text, err
}
