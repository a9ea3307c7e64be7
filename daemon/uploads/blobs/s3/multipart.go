package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"firstlight.dev/firstlight/daemon/uploads/blobs"
)

// PendingUpload is an upload that was begun and neither completed nor aborted.
type PendingUpload struct {
	Object  string
	ID      string
	Started time.Time
}

// Begin implements blobs.Uploads.
func (s *Client) Begin(ctx context.Context, u blobs.Upload, meta map[string]string) (id string, err error) {
	err = s.retry(ctx, "begin upload of "+u.Object, tryTime, func(ctx context.Context) (err error) {
		id, err = s.core.NewMultipartUpload(
			ctx, u.Bucket, u.Object,
			minio.PutObjectOptions{ContentType: "application/octet-stream", UserMetadata: meta},
		)
		return err
	})
	return id, err
}

// PartFile implements blobs.Uploads.
func (s *Client) PartFile(blobs.Upload) (f *os.File, whole bool, err error) {
	f, err = openScratch(s.scratch)
	return f, false, err
}

// PutPart implements blobs.Uploads. What the file holds is read anew for each try.
func (s *Client) PutPart(ctx context.Context, u blobs.Upload, number int, f *os.File, size int64, sum uint32) error {
	header := http.Header{"X-Amz-Checksum-Crc32c": {crc32c(sum)}}
	return s.retry(ctx, fmt.Sprintf("store part %d of %s", number, u.Object), tryTime, func(ctx context.Context) error {
		_, err := s.core.PutObjectPart(withFileBody(
			ctx, f, size,
		), u.Bucket, u.Object, u.ID, number, io.NewSectionReader(f, 0, size), size,
			minio.PutObjectPartOptions{CustomHeader: header, DisableContentSha256: true})
		return err
	})
}

// fragmentName is the object of a fragment.
func fragmentName(u blobs.Upload, t blobs.Fragment) string {
	return blobs.FragmentPrefix + u.Serial + "/" + strconv.FormatInt(t.Offset, 10)
}

// PutFragment implements blobs.Uploads.
func (s *Client) PutFragment(ctx context.Context, u blobs.Upload, t blobs.Fragment, f *os.File, at int64) error {
	name := fragmentName(u, t)
	return s.retry(ctx, "store "+name, tryTime, func(ctx context.Context) error {
		_, err := s.core.PutObject(ctx, u.Bucket, name, io.NewSectionReader(f, at, t.Length), t.Length, "", "",
			minio.PutObjectOptions{ContentType: "application/octet-stream", DisableContentSha256: true})
		return err
	})
}

// LoadFragment implements blobs.Uploads.
func (s *Client) LoadFragment(
	ctx context.Context,
	u blobs.Upload,
	t blobs.Fragment,
	f *os.File,
	at int64,
) (bool, error) {
	body, err := s.Open(ctx, u.Bucket, fragmentName(u, t), 0, t.Length)
	if errors.Is(err, blobs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer body.Close()

	n, err := io.Copy(io.NewOffsetWriter(f, at), body)
	if err != nil {
		return false, blobs.FullError(fmt.Errorf("read fragment %d: %w", t.Offset, err))
	}

	return n == t.Length, nil
}

// RemoveFragments implements blobs.Uploads.
func (s *Client) RemoveFragments(ctx context.Context, u blobs.Upload, old []blobs.Fragment) (err error) {
	for _, t := range old {
		err = errors.Join(err, s.Remove(ctx, u.Bucket, fragmentName(u, t)))
	}
	return err
}

// LostParts implements blobs.Uploads.
func (s *Client) LostParts(ctx context.Context, u blobs.Upload, n int64) (string, error) {
	parts, err := s.parts(ctx, u)
	if err != nil && !errors.Is(err, blobs.ErrNotExist) {
		return "", err
	}

	_, lost := checkParts(parts, u, n)
	return lost, nil
}

// checkParts chooses the first n parts, and says what is not right with them; "" if nothing is.
func checkParts(parts []minio.ObjectPart, u blobs.Upload, n int64) (all []minio.CompletePart, lost string) {
	if int64(len(parts)) < n {
		return nil, fmt.Sprintf("%d of %d parts are there", len(parts), n)
	}
	for i, p := range parts[:n] {
		if size := min(u.PartSize, u.Length-int64(i)*u.PartSize); p.PartNumber != i+1 || p.Size != size {
			return nil, fmt.Sprintf("part %d has %d bytes, not %d", p.PartNumber, p.Size, size)
		}
		all = append(all, minio.CompletePart{PartNumber: p.PartNumber, ETag: p.ETag})
	}
	return all, ""
}

// parts lists the parts that are there, by number.
func (s *Client) parts(ctx context.Context, u blobs.Upload) (parts []minio.ObjectPart, err error) {
	after := 0
	for {
		var page minio.ListObjectPartsResult
		err := s.retry(ctx, "list parts of "+u.Object, tryTime, func(ctx context.Context) (err error) {
			page, err = s.core.ListObjectParts(ctx, u.Bucket, u.Object, u.ID, after, 1000)
			return err
		})
		if err != nil {
			return nil, err
		}

		parts = append(parts, page.ObjectParts...)
		if !page.IsTruncated || page.NextPartNumberMarker <= after {
			slices.SortFunc(parts, func(a, b minio.ObjectPart) int { return a.PartNumber - b.PartNumber })
			return parts, nil
		}

		after = page.NextPartNumberMarker
	}
}

// Complete implements blobs.Uploads. The server has the metadata since Begin.
func (s *Client) Complete(ctx context.Context, u blobs.Upload, n int64, _ map[string]string) (lost string, err error) {
	parts, err := s.parts(ctx, u)
	if err != nil && !errors.Is(err, blobs.ErrNotExist) {
		return "", err
	}

	list, lost := checkParts(parts, u, n)
	if lost != "" {
		return lost, nil
	}

	return "", s.retry(ctx, "complete "+u.Object, completeTime, func(ctx context.Context) error {
		_, err := s.core.CompleteMultipartUpload(ctx, u.Bucket, u.Object, u.ID, list, minio.PutObjectOptions{})
		return err
	})
}

// Discard implements blobs.Uploads.
func (s *Client) Discard(ctx context.Context, u blobs.Upload) error {
	err := s.RemoveFragments(ctx, u, u.Tail)
	if u.ID != "" {
		err = errors.Join(err, s.Abort(ctx, u.Bucket, u.Object, u.ID))
	}
	return err
}

// Abort removes an upload and its parts; none of that ID is no error.
func (s *Client) Abort(ctx context.Context, bucket, object, id string) error {
	err := s.retry(ctx, "abort upload of "+object, tryTime, func(ctx context.Context) error {
		return s.core.AbortMultipartUpload(ctx, bucket, object, id)
	})
	if errors.Is(err, blobs.ErrNotExist) {
		return nil
	}
	return err
}

// Sweep implements blobs.Uploads. Others may upload into the bucket by S3 itself.
func (s *Client) Sweep(
	ctx context.Context,
	bucket string,
	named func(serial, id string) bool,
	now time.Time,
	age time.Duration,
) error {
	err := s.List(ctx, bucket, blobs.FragmentPrefix, func(o blobs.Object) error {
		serial, _, _ := strings.Cut(strings.TrimPrefix(o.Name, blobs.FragmentPrefix), "/")
		if now.Sub(o.Modified) <= blobs.SweepAge || named(serial, "") {
			return nil
		}
		return s.Remove(ctx, bucket, o.Name)
	})
	pending, err2 := s.PendingUploads(ctx, bucket)
	for _, u := range pending {
		if now.Sub(u.Started) > age && !named("", u.ID) {
			err2 = errors.Join(err2, s.Abort(ctx, bucket, u.Object, u.ID))
		}
	}

	return errors.Join(err, err2)
}

// PendingUploads lists the uploads of a bucket.
func (s *Client) PendingUploads(ctx context.Context, bucket string) (all []PendingUpload, err error) {
	key, id := "", ""
	for {
		var page minio.ListMultipartUploadsResult
		err := s.retry(ctx, "list uploads of "+bucket, tryTime, func(ctx context.Context) (err error) {
			page, err = s.core.ListMultipartUploads(ctx, bucket, "", key, id, "", 1000)
			return err
		})
		if errors.Is(err, blobs.ErrNotExist) {
			return all, nil // some stores say so when there is none
		}
		if err != nil {
			return nil, err
		}

		for _, u := range page.Uploads {
			all = append(all, PendingUpload{u.Key, u.UploadID, u.Initiated})
		}

		if !page.IsTruncated || page.NextKeyMarker == key && page.NextUploadIDMarker == id {
			return all, nil
		}

		key, id = page.NextKeyMarker, page.NextUploadIDMarker
	}
}
