package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"sync"

	"firstlight.dev/firstlight/assets/artifact"
)

// Progress is told how far a phase (hash, send, fetch) has come, in octets.
type Progress func(phase string, done, total int64)

// Push sends a file and returns the record once the appliance has all of it and found the
// same sha256. An upload of the same content that was begun before is gone on with. Content
// of the same name that differs is replaced only if that is asked for; r says what else the
// record holds.
func (c Client) Push(
	ctx context.Context,
	k artifact.Key,
	path string,
	r artifact.Metadata,
	replace bool,
	progress Progress,
) (artifact.Metadata, error) {
	file, err := os.Open(path)
	if err != nil {
		return r, fmt.Errorf("open file: %w", err)
	}
	defer file.Close()

	progress = serialize(progress)
	sum, length, err := hashFile(file, progress)
	if err != nil {
		return r, err
	}
	if length == 0 {
		return r, fmt.Errorf("%s is empty", path)
	}

	r.Owner, r.ClusterName, r.ImageName, r.ImageLength, r.SHA256 = k.Owner, k.Cluster, k.Name, length, sum
	have, err := c.begin(ctx, k, r, replace)
	if err != nil || have.Complete {
		return have, err
	}

	at := have.ImageOffset
	err = c.retry(ctx, func() int64 { return at }, func(ctx context.Context) (bool, error) {
		return c.sendRest(ctx, k, file, &at, length, progress)
	})
	if err != nil {
		return have, err
	}

	have, err = c.Metadata(ctx, k)
	if err == nil && (!have.Complete || have.SHA256 != sum) {
		err = fmt.Errorf(
			"the appliance has %d of %d bytes with sha256 %q, not %s", have.ImageOffset, length, have.SHA256, sum,
		)
	}

	return have, err
}

// serialize lets a request that ends and the next one tell their progress one after the other.
func serialize(progress Progress) Progress {
	var mu sync.Mutex
	return func(phase string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		progress(phase, done, total)
	}
}

func hashFile(f *os.File, progress Progress) (sum string, length int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return "", 0, fmt.Errorf("read file: %w", err)
	}

	h := sha256.New()
	length, err = io.Copy(h, &countingReader{from: f, moved: func(n int64) { progress("hash", n, info.Size()) }})
	if err != nil {
		return "", 0, fmt.Errorf("read file: %w", err)
	}

	return hex.EncodeToString(h.Sum(nil)), length, nil
}

// begin announces, or finds what was announced before.
func (c Client) begin(
	ctx context.Context,
	k artifact.Key,
	r artifact.Metadata,
	replace bool,
) (artifact.Metadata, error) {
	have, err := c.Metadata(ctx, k)
	var p artifact.Problem
	switch {
	case errors.As(err, &p) && p.Status == http.StatusNotFound:
		return c.announce(ctx, k, r, false)
	case err != nil:
		return have, err
	case have.ImageLength == r.ImageLength && have.SHA256 == r.SHA256:
		return have, nil
	case have.ImageLength == r.ImageLength && have.SHA256 == "" && !have.Complete:
		return c.announce(ctx, k, r, true) // the same, and now with its digest
	case !replace:
		return have, fmt.Errorf(
			"there is another %s already, of %d bytes with sha256 %s; replace it or use another name", k.Name,
			have.ImageLength, have.SHA256,
		)
	}

	return c.announce(ctx, k, r, true)
}

// sendRest sends what remains in one request. It asks first where to go on, if a request was
// cut before.
func (c Client) sendRest(
	ctx context.Context,
	k artifact.Key,
	file *os.File,
	at *int64,
	length int64,
	progress Progress,
) (done bool, err error) {
	begun := *at
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	body := &countingReader{
		from:  io.NewSectionReader(file, begun, length-begun),
		moved: func(n int64) { progress("send", begun+n, length) },
	}
	r, err := c.newRequest(ctx, http.MethodPatch, k.Path(), body)
	if err != nil {
		return false, err
	}

	r.ContentLength = length - begun
	r.Header.Set(artifact.HeaderOffset, fmt.Sprint(begun))
	r.Header.Set("Expect", "100-continue") // a refusal comes before the octets go
	r.Header.Set("Content-Type", "application/octet-stream")
	stop := body.cancelOnStall(cancel, r.ContentLength)
	defer stop()
	response, err := c.HTTP.Do(r)
	if err == nil {
		defer response.Body.Close()
		if response.StatusCode == http.StatusNoContent {
			*at = length
			return true, nil
		}
		err = responseError(response)
	} else if cause := context.Cause(ctx); cause != nil {
		err = cause
	} else {
		err = stripURL(err)
	}

	if !isTransient(err) {
		return false, err
	}

	have, failed := c.Metadata(ctx, k)
	if failed != nil {
		return false, errors.Join(err, failed)
	}

	*at = have.ImageOffset
	return have.Complete, err
}

// Fetch reads an artifact into a file, which appears under its name only when it is whole
// and its sha256 is the record's. A file of that name that holds something else is left alone, unless
// Overwrite is set. What was fetched before a cut lies beside it as PATH.SHA256.part, with the first 12
// digits, and is gone on with: no other file has that name.
func (c Client) Fetch(ctx context.Context, k artifact.Key, path string, progress Progress) (artifact.Metadata, error) {
	have, err := c.Metadata(ctx, k)
	if err != nil {
		return have, err
	}
	if !have.Complete {
		return have, fmt.Errorf(
			"%s is not complete: %d of %d bytes are there", k.Name, have.ImageOffset, have.ImageLength,
		)
	}
	if have.SHA256 == "" {
		return have, fmt.Errorf("the appliance still computes the sha256 of %s; try again", k.Name)
	}

	switch same, err := fileMatches(path, have, progress); {
	case err != nil:
		return have, err
	case same:
		return have, nil
	}

	if err := c.mayWrite(path); err != nil {
		return have, err
	}

	partial := PartialName(path, have)
	file, err := os.OpenFile(partial, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return have, fmt.Errorf("open file: %w", err)
	}
	defer file.Close()

	var at int64
	err = c.retry(ctx, func() int64 { return at }, func(ctx context.Context) (bool, error) {
		return c.fetchRest(ctx, k, have, file, &at, progress)
	})
	if err != nil {
		return have, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return have, fmt.Errorf("read file: %w", err)
	}

	sum, _, err := hashFile(file, progress)
	if err != nil {
		return have, err
	}
	if sum != have.SHA256 {
		return have, errors.Join(
			fmt.Errorf("what was fetched has sha256 %s, not %s", sum, have.SHA256), os.Remove(partial),
		)
	}
	if err := file.Sync(); err != nil {
		return have, fmt.Errorf("write file: %w", err)
	}
	if err := c.mayWrite(path); err != nil { // it came meanwhile
		return have, err
	}

	return have, os.Rename(partial, path)
}

// PartialName is where Fetch keeps what it has of an artifact with a sha256.
func PartialName(path string, r artifact.Metadata) string {
	return fmt.Sprintf("%s.%.12s.part", path, r.SHA256)
}

// fileMatches tells whether a file is the artifact already.
func fileMatches(path string, have artifact.Metadata, progress Progress) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return false, fmt.Errorf("%s is no file; name one", path)
	}
	if info.Size() != have.ImageLength {
		return false, nil
	}

	file, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("open file: %w", err)
	}
	defer file.Close()

	sum, _, err := hashFile(file, progress)
	return sum == have.SHA256, err
}

// mayWrite refuses to write over a file that nobody gave up.
func (c Client) mayWrite(path string) error {
	if _, err := os.Lstat(path); c.Overwrite || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s is there and holds something else; name another file, or replace it", path)
}

func (c Client) fetchRest(
	ctx context.Context,
	k artifact.Key,
	have artifact.Metadata,
	file *os.File,
	at *int64,
	progress Progress,
) (done bool, err error) {
	begun, err := file.Seek(0, io.SeekEnd)
	if err == nil && begun > have.ImageLength {
		begun, err = 0, file.Truncate(0)
	}

	if err == nil {
		_, err = file.Seek(begun, io.SeekStart)
	}

	if err != nil {
		return false, localError{fmt.Errorf("read file: %w", err)}
	}
	if *at = begun; begun == have.ImageLength {
		return true, nil
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, err := c.newRequest(ctx, http.MethodGet, k.ContentPath(), nil)
	if err != nil {
		return false, err
	}

	r.Header.Set("Range", fmt.Sprintf("bytes=%d-", begun))
	r.Header.Set("If-Match", `"sha256:`+have.SHA256+`"`)
	response, err := c.HTTP.Do(r)
	if err != nil {
		return false, stripURL(err)
	}
	defer response.Body.Close()

	if response.StatusCode != http.StatusPartialContent {
		return false, responseError(response)
	}

	body := &countingReader{
		from:  response.Body,
		moved: func(n int64) { *at = begun + n; progress("fetch", *at, have.ImageLength) },
	}
	defer body.cancelOnStall(cancel, have.ImageLength-begun)()
	if _, err := io.Copy(localWriter{file}, body); err != nil {
		return false, fmt.Errorf("fetch: %w", err)
	}

	return *at == have.ImageLength, io.ErrUnexpectedEOF
}

// localError is this machine's matter: trying again does not help.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// localWriter makes its writer's failures local ones.
type localWriter struct{ io.Writer }

func (l localWriter) Write(p []byte) (int, error) {
	n, err := l.Writer.Write(p)
	if err != nil {
		err = localError{fmt.Errorf("write file: %w", err)}
	}
	return n, err
}
