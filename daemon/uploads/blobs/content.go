package blobs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"firstlight.dev/firstlight/assets/artifact"
)

// Content is the bytes of a complete artifact. The store is asked when something is read,
// from where it is read on; it ends with its context.
type Content struct {
	ctx            context.Context
	store          Backend
	bucket, object string
	size, at       int64
	body           io.ReadCloser // nil, or at the right place
}

// Content opens a complete artifact; the caller closes it.
func (d *Store) Content(ctx context.Context, k artifact.Key) (*Content, artifact.Metadata, error) {
	r, err := d.Get(k)
	if err != nil {
		return nil, r, err
	}
	if r.Damaged != "" {
		return nil, r, &Error{Kind: Damaged, Text: k.Name + " cannot be read: " + r.Damaged}
	}
	if !r.Complete {
		return nil, r, &Error{
			Kind:   Unfinished,
			Text:   fmt.Sprintf("%s is not complete: %d of %d bytes are there", k.Name, r.ImageOffset, r.ImageLength),
			Offset: r.ImageOffset,
		}
	}

	return &Content{
		ctx:    ctx,
		store:  d.Backend,
		bucket: k.Collection.Bucket(),
		object: k.Object(),
		size:   r.ImageLength,
	}, r, nil
}

func (c *Content) Read(p []byte) (int, error) {
	if c.at >= c.size {
		return 0, io.EOF
	}

	if c.body == nil {
		body, err := c.store.Open(c.ctx, c.bucket, c.object, c.at, c.size-c.at)
		if err != nil {
			return 0, wrapStoreError(err, c.object, "read", 0)
		}
		c.body = body
	}

	n, err := c.body.Read(p)
	c.at += int64(n)
	if errors.Is(err, io.EOF) && c.at < c.size {
		err = io.ErrUnexpectedEOF
	}

	return n, err
}

func (c *Content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.at
	case io.SeekEnd:
		offset += c.size
	}

	if offset < 0 {
		return 0, fmt.Errorf("seek %s: %d is before its beginning", c.object, offset)
	}

	if offset != c.at {
		c.Close()
	}

	c.at = offset
	return offset, nil
}

// Close ends what is being read; reading may go on after it.
func (c *Content) Close() error {
	if c.body == nil {
		return nil
	}

	err := c.body.Close()
	c.body = nil
	return err
}
