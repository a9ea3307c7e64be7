// Package s3 is the backend of the blob store that a site brings itself: an S3 server. Parts gather in scratch files and
// go to the server when they are whole; what there is of one when a request ends is an object of its own. It waits a
// while for a server that is down.
package s3

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// Time that one try of a request may take; completing an upload may copy all of it.
const (
	tryTime      = 2 * time.Minute
	completeTime = 2 * time.Hour
)

// Config says which store, and how long to wait for it.
type Config struct {
	Endpoint     string // http://HOST:PORT or https://HOST:PORT
	Region       string // "" is us-east-1
	AccessKey    string
	SecretKey    string
	CAFile       string        // PEM, for https; "" trusts the system's
	Scratch      string        // directory for unnamed files of one to four parts for each upload at work
	RetryTimeout time.Duration // how long a request is tried again while the store is down; 0 is a minute
}

// Client speaks to one S3 server.
type Client struct {
	core         minio.Core
	region       string
	scratch      string
	retryTimeout time.Duration
}

// New returns a client. No request is made.
func New(c Config) (*Client, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("parse store endpoint: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("store endpoint %q is not http://HOST:PORT or https://HOST:PORT", c.Endpoint)
	}

	transport := &http.Transport{
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      64 << 10,
	}
	if c.CAFile != "" {
		ca, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read authority of store: %w", err)
		}

		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return nil, fmt.Errorf("authority of store %s holds no certificate", c.CAFile)
		}

		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}

	s := &Client{region: c.Region, scratch: c.Scratch, retryTimeout: c.RetryTimeout}
	if s.region == "" {
		s.region = "us-east-1"
	}

	if s.retryTimeout == 0 {
		s.retryTimeout = time.Minute
	}

	client, err := minio.New(u.Host, &minio.Options{
		Creds:        credentials.NewStaticV4(c.AccessKey, c.SecretKey, ""),
		Secure:       u.Scheme == "https",
		Transport:    fileTransport{transport},
		Region:       s.region,
		BucketLookup: minio.BucketLookupPath,
		MaxRetries:   1,
	})
	if err != nil {
		return nil, fmt.Errorf("make client of store: %w", err)
	}

	s.core = minio.Core{Client: client}
	return s, nil
}

// MakeBucket makes a bucket if it is not there.
func (s *Client) MakeBucket(ctx context.Context, bucket string) error {
	return s.retry(ctx, "make bucket "+bucket, tryTime, func(ctx context.Context) error {
		err := s.core.MakeBucket(ctx, bucket, minio.MakeBucketOptions{Region: s.region})
		switch minio.ToErrorResponse(err).Code {
		case "BucketAlreadyOwnedByYou", "BucketAlreadyExists":
			return nil
		}
		return err
	})
}

// Put stores a small object, in place of one that has the name.
func (s *Client) Put(ctx context.Context, bucket, object string, data []byte) error {
	return s.retry(ctx, "store "+object, tryTime, func(ctx context.Context) error {
		_, err := s.core.PutObject(ctx, bucket, object, bytes.NewReader(data), int64(len(data)), "", "",
			minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true})
		return err
	})
}

// Get reads a whole object of at most limit octets.
func (s *Client) Get(ctx context.Context, bucket, object string, limit int64) (data []byte, err error) {
	err = s.retry(ctx, "read "+object, tryTime, func(ctx context.Context) error {
		body, _, _, err := s.core.GetObject(ctx, bucket, object, minio.GetObjectOptions{})
		if err != nil {
			return err
		}
		defer body.Close()

		data, err = io.ReadAll(io.LimitReader(body, limit+1))
		if err == nil && int64(len(data)) > limit {
			return fmt.Errorf("it has more than %d bytes", limit)
		}

		return err
	})
	return data, err
}

// Open reads length octets of an object from offset on; the stream ends with ctx.
func (s *Client) Open(ctx context.Context, bucket, object string, offset, length int64) (io.ReadCloser, error) {
	var o minio.GetObjectOptions
	if err := o.SetRange(offset, offset+length-1); err != nil {
		return nil, fmt.Errorf("read %s: %w", object, err)
	}

	var body io.ReadCloser
	err := s.retry(ctx, "read "+object, 0, func(ctx context.Context) (err error) {
		body, _, _, err = s.core.GetObject(ctx, bucket, object, o)
		return err
	})
	return body, err
}

// Stat asks for one object.
func (s *Client) Stat(ctx context.Context, bucket, object string) (o blobs.Object, err error) {
	err = s.retry(ctx, "stat "+object, tryTime, func(ctx context.Context) error {
		i, err := s.core.StatObject(ctx, bucket, object, minio.StatObjectOptions{})
		o = blobs.Object{Name: object, Size: i.Size, Modified: i.LastModified, Meta: i.UserMetadata}
		return err
	})
	return o, err
}

// List calls yield for every object whose name begins with prefix, in the order of names.
func (s *Client) List(ctx context.Context, bucket, prefix string, yield func(blobs.Object) error) error {
	token := ""
	for {
		var page minio.ListBucketV2Result
		err := s.retry(ctx, "list bucket "+bucket, tryTime, func(context.Context) (err error) {
			page, err = s.core.ListObjectsV2(bucket, prefix, "", token, "", 1000)
			return err
		})
		if err != nil {
			return err
		}

		for _, c := range page.Contents {
			if err := yield(blobs.Object{Name: c.Key, Size: c.Size, Modified: c.LastModified}); err != nil {
				return err
			}
		}

		if token = page.NextContinuationToken; !page.IsTruncated || token == "" {
			return nil
		}
	}
}

// Remove removes an object; none of that name is no error.
func (s *Client) Remove(ctx context.Context, bucket, object string) error {
	err := s.retry(ctx, "remove "+object, tryTime, func(ctx context.Context) error {
		return s.core.RemoveObject(ctx, bucket, object, minio.RemoveObjectOptions{})
	})
	if errors.Is(err, blobs.ErrNotExist) {
		return nil
	}
	return err
}

// crc32c is a part's checksum as the header has it.
func crc32c(sum uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, sum))
}

// retry runs a request until it is answered, or the store has been down for too long. Each
// try may take so long; 0 is without end.
func (s *Client) retry(ctx context.Context, what string, each time.Duration, do func(context.Context) error) error {
	end := time.Now().Add(s.retryTimeout)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := tryOnce(ctx, each, do)
		if err == nil {
			return nil
		}
		if err = classify(err); !errors.Is(err, blobs.ErrDown) || ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("%s: %w", what, err)
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(pause):
		}
	}
}

func tryOnce(ctx context.Context, each time.Duration, do func(context.Context) error) error {
	if each == 0 {
		return do(ctx)
	}

	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	return do(ctx)
}

// classify says which of the three a failure is. Names of errors are S3's, versitygw's and
// MinIO's.
func classify(err error) error {
	r := minio.ToErrorResponse(err)
	switch r.Code {
	case "NoSuchKey", "NoSuchUpload", "NoSuchBucket":
		return fmt.Errorf("%w (%s)", blobs.ErrNotExist, r.Code)
	case "XMinioStorageFull", "InsufficientStorage", "QuotaExceeded":
		return fmt.Errorf("%w (%s)", blobs.ErrFull, r.Code)
	}

	switch {
	case r.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%w (%s)", blobs.ErrNotExist, r.Code)
	case r.StatusCode == http.StatusInsufficientStorage:
		return fmt.Errorf("%w (%s)", blobs.ErrFull, r.Code)
	case r.StatusCode >= 500, r.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %s", blobs.ErrDown, r.Message)
	}

	var network *url.Error
	if errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", blobs.ErrDown, err)
	}

	return err
}
