package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/minio/minio-go/v7"
)

// Part is one part of an upload as the store has it.
type Part struct {
	Number int // from 1
	Size   int64
	ETag   string
}

// Upload is an upload that was begun and neither completed nor aborted.
type Upload struct {
	Object  string
	ID      string
	Started time.Time
}

// Begin begins an upload of parts. meta are kept with the object.
func (s *Client) Begin(ctx context.Context, bucket, object string, meta map[string]string) (id string, err error) {
	err = s.retry(ctx, "begin upload of "+object, tryTime, func(ctx context.Context) (err error) {
		id, err = s.core.NewMultipartUpload(ctx, bucket, object, minio.PutObjectOptions{ContentType: "application/octet-stream", UserMetadata: meta})
		return err
	})
	return id, err
}

// PutPart stores a part: the first size octets of r, whose CRC-32C the store checks. It takes
// the place of one that has the number. What r holds is read anew for each try.
func (s *Client) PutPart(ctx context.Context, bucket, object, id string, number int, r io.ReaderAt, size int64, sum uint32) error {
	header := http.Header{"X-Amz-Checksum-Crc32c": {crc32c(sum)}}
	return s.retry(ctx, fmt.Sprintf("store part %d of %s", number, object), tryTime, func(ctx context.Context) error {
		_, err := s.core.PutObjectPart(withFileBody(ctx, r, size), bucket, object, id, number, io.NewSectionReader(r, 0, size), size,
			minio.PutObjectPartOptions{CustomHeader: header, DisableContentSha256: true})
		return err
	})
}

// Parts lists the parts that are there, by number.
func (s *Client) Parts(ctx context.Context, bucket, object, id string) (parts []Part, err error) {
	after := 0
	for {
		var page minio.ListObjectPartsResult
		err := s.retry(ctx, "list parts of "+object, tryTime, func(ctx context.Context) (err error) {
			page, err = s.core.ListObjectParts(ctx, bucket, object, id, after, 1000)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, p := range page.ObjectParts {
			parts = append(parts, Part{p.PartNumber, p.Size, p.ETag})
		}
		if !page.IsTruncated || page.NextPartNumberMarker <= after {
			slices.SortFunc(parts, func(a, b Part) int { return a.Number - b.Number })
			return parts, nil
		}
		after = page.NextPartNumberMarker
	}
}

// Complete makes one object of the parts. Whoever is told that the upload does not exist
// should look whether the object does: an answer may have been lost.
func (s *Client) Complete(ctx context.Context, bucket, object, id string, parts []Part) error {
	var list []minio.CompletePart
	for _, p := range parts {
		list = append(list, minio.CompletePart{PartNumber: p.Number, ETag: p.ETag})
	}
	return s.retry(ctx, "complete "+object, completeTime, func(ctx context.Context) error {
		_, err := s.core.CompleteMultipartUpload(ctx, bucket, object, id, list, minio.PutObjectOptions{})
		return err
	})
}

// Abort removes an upload and its parts; none of that ID is no error.
func (s *Client) Abort(ctx context.Context, bucket, object, id string) error {
	err := s.retry(ctx, "abort upload of "+object, tryTime, func(ctx context.Context) error {
		return s.core.AbortMultipartUpload(ctx, bucket, object, id)
	})
	if errors.Is(err, ErrNotExist) {
		return nil
	}
	return err
}

// Uploads lists the uploads of a bucket.
func (s *Client) Uploads(ctx context.Context, bucket string) (all []Upload, err error) {
	key, id := "", ""
	for {
		var page minio.ListMultipartUploadsResult
		err := s.retry(ctx, "list uploads of "+bucket, tryTime, func(ctx context.Context) (err error) {
			page, err = s.core.ListMultipartUploads(ctx, bucket, "", key, id, "", 1000)
			return err
		})
		if errors.Is(err, ErrNotExist) {
			return all, nil // some stores say so when there is none
		}
		if err != nil {
			return nil, err
		}
		for _, u := range page.Uploads {
			all = append(all, Upload{u.Key, u.UploadID, u.Initiated})
		}
		if !page.IsTruncated || page.NextKeyMarker == key && page.NextUploadIDMarker == id {
			return all, nil
		}
		key, id = page.NextKeyMarker, page.NextUploadIDMarker
	}
}
