package blobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/daemon/uploads/blobs/diskimage"
)

// finish makes one object of an upload whose last byte is in the store. It may be called
// again after any failure or kill; the caller has the turn.
func (d *Store) finish(ctx context.Context, e *entry) error {
	e.session.close()
	e.session = nil
	kp := e.copyState()
	r, u := kp.Record, kp.Upload
	h, err := hashFrom(u.Hash)
	if err != nil {
		return err
	}

	sum := hex.EncodeToString(h.Sum(nil))
	if r.SHA256 != "" && r.SHA256 != sum {
		if _, err := d.restart(ctx, e); err != nil {
			return wrapStoreError(err, r.ImageName, "given up", r.ImageOffset)
		}
		return &Error{
			Kind: Refused,
			Text: fmt.Sprintf("the sha256 is %s, not %s as announced; nothing is kept", sum, r.SHA256),
		}
	}

	lost, err := d.assemble(ctx, e, *u, r.ImageLength)
	if err != nil {
		return wrapStoreError(err, r.ImageName, "completed", r.ImageOffset)
	}
	if lost != "" {
		if _, err := d.restart(ctx, e); err != nil {
			return wrapStoreError(err, r.ImageName, "given up", r.ImageOffset)
		}
		return &Error{
			Kind: Down,
			Text: "the store lost what it had of " + r.ImageName + " (" + lost + "); send it again",
		}
	}

	err = d.update(ctx, e, func(kp *entryState) {
		kp.Record.Complete, kp.Record.SHA256, kp.Record.Updated, kp.Upload = true, sum, d.Now().UTC(), nil
	})
	if err != nil {
		return wrapStoreError(err, r.ImageName, "completed", r.ImageOffset)
	}

	d.Changed()
	d.Log.Info("artifact complete", "artifact", e.key.String(), "octets", r.ImageLength, "sha256", sum)
	return nil
}

// assemble completes the parts, or finds that it was done before. It believes the store only
// when the object is there with its length and serial.
func (d *Store) assemble(ctx context.Context, e *entry, u upload, length int64) (lost string, err error) {
	there, err := d.objectExists(ctx, e, u, length)
	if there || err != nil {
		return "", err
	}

	r := e.copyState().Record
	lost, completed := d.Backend.Complete(ctx, u.in(e.key, length), u.partCount(length, length), objectMetadata(r, &u))
	if lost != "" {
		return lost, nil
	}

	there, err = d.objectExists(ctx, e, u, length)
	switch {
	case there:
		return "", nil
	case completed != nil:
		return "", completed
	case err != nil:
		return "", err
	}

	return "", fmt.Errorf("%w with what it says it completed", ErrDown)
}

// objectExists tells whether the object of an upload exists.
func (d *Store) objectExists(ctx context.Context, e *entry, u upload, length int64) (bool, error) {
	o, err := d.Backend.Stat(ctx, e.key.Collection.Bucket(), e.key.Object())
	if errors.Is(err, ErrNotExist) {
		return false, nil
	}
	return err == nil && o.Size == length && o.Meta[metaSerial] == u.Serial, err
}

// mustRead tells whether an object must be read, because its record was made again or it came into
// the store without us.
func mustRead(k artifact.Key, r artifact.Metadata) bool {
	return r.SHA256 == "" || k.Collection == artifact.OS && r.Format == "" && r.NotServed == ""
}

// readStored finds the sha256 of such an object, and whether it is an OS image that can be installed.
func (d *Store) readStored(ctx context.Context, e *entry) error {
	r := e.metadata()
	body, err := d.Backend.Open(ctx, e.key.Collection.Bucket(), e.key.Object(), 0, r.ImageLength)
	if err != nil {
		return err
	}
	defer body.Close()

	head := make([]byte, min(diskimage.HeadLength, r.ImageLength))
	if _, err := io.ReadFull(body, head); err != nil {
		return fmt.Errorf("read %s: %w", e.key, err)
	}

	sum := r.SHA256
	if sum == "" {
		h := sha256.New()
		h.Write(head)
		buffer := buffers.Get().(*[]byte)
		defer buffers.Put(buffer)
		n, err := io.CopyBuffer(h, struct{ io.Reader }{io.LimitReader(body, r.ImageLength)}, *buffer)
		if err != nil {
			return fmt.Errorf("read %s: %w", e.key, err)
		}
		if n += int64(len(head)); n != r.ImageLength {
			return nil // it is another one by now
		}

		sum = hex.EncodeToString(h.Sum(nil))
	}

	key := e.key
	if e, err = d.acquire(ctx, key, turnWait); err != nil {
		return err
	}
	defer e.release()

	if now := e.metadata(); !now.Complete || !mustRead(
		key, now,
	) || now.SHA256 != r.SHA256 || !now.Updated.Equal(r.Updated) {
		return nil // as above
	}
	defer d.Changed()

	return d.update(ctx, e, func(kp *entryState) {
		kp.Record.SHA256 = sum
		if key.Collection != artifact.OS {
			return
		}

		info, err := diskimage.Check(head, r.ImageLength)
		if err != nil {
			kp.Record.NotServed = "this is no OS image that can be installed: " + err.Error()
			return
		}

		kp.Record.Format, kp.Record.VirtualSize = info.Format, info.VirtualSize
	})
}

// SetServed notes under which names a container image can be pulled, or why it cannot; of one that was
// replaced meanwhile, nothing.
func (d *Store) SetServed(ctx context.Context, k artifact.Key, sha256 string, names []string, why string) error {
	e, err := d.acquire(ctx, k, turnWait)
	if err != nil {
		return err
	}
	defer e.release()

	if now := e.metadata(); !now.Complete || now.SHA256 != sha256 {
		return nil
	}

	return d.update(ctx, e, func(kp *entryState) { kp.Record.ServedAs, kp.Record.NotServed = names, why })
}
