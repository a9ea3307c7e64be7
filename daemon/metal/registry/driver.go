package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/distribution/distribution/v3/registry/storage/driver"
	"github.com/distribution/distribution/v3/registry/storage/driver/factory"
	"github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
	"github.com/sirupsen/logrus"

	"firstlight.dev/firstlight/assets/layer"
)

// storageDriver is the registry library's view of two places: the bundle on the stick, which is read, and a
// directory on DATA, which takes what is pushed. What the bundle has is never looked for elsewhere.
type storageDriver struct {
	layout *imageLayout
	driver.StorageDriver
}

func newStorage(b *imageLayout, dir string) (*storageDriver, error) {
	pushed, err := filesystem.FromParameters(map[string]any{"rootdirectory": dir})
	if err != nil {
		return nil, fmt.Errorf("open store of pushed images %s: %w", dir, err)
	}
	return &storageDriver{layout: b, StorageDriver: pushed}, nil
}

// dataDriver is the directory on DATA alone.
func (s *storageDriver) dataDriver() driver.StorageDriver { return s.StorageDriver }

func (s *storageDriver) Name() string { return "firstlight" }

// GetContent implements driver.StorageDriver.
func (s *storageDriver) GetContent(ctx context.Context, name string) ([]byte, error) {
	e := s.layout.entries[name]
	switch {
	case e == nil || e.isDir():
		return s.StorageDriver.GetContent(ctx, name)
	case e.content != nil:
		return bytes.Clone(e.content), nil
	case e.layer != nil:
		r, err := s.Reader(ctx, name, 0)
		if err != nil {
			return nil, err
		}
		defer r.Close()

		return io.ReadAll(r)
	}
	return os.ReadFile(e.file)
}

// Reader implements driver.StorageDriver.
func (s *storageDriver) Reader(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	e := s.layout.entries[name]
	if e == nil || e.isDir() {
		return s.StorageDriver.Reader(ctx, name, offset)
	}
	if offset < 0 {
		return nil, driver.InvalidOffsetError{Path: name, Offset: offset, DriverName: s.Name()}
	}
	if e.content != nil {
		return io.NopCloser(bytes.NewReader(e.content[min(offset, e.size):])), nil
	}
	if e.layer != nil {
		l, err := layer.Open(e.layer)
		if err != nil {
			return nil, err
		}
		return l.Reader(offset), nil
	}

	f, err := os.Open(e.file)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}

	return f, nil
}

// Stat implements driver.StorageDriver.
func (s *storageDriver) Stat(ctx context.Context, name string) (driver.FileInfo, error) {
	e := s.layout.entries[name]
	if e == nil {
		return s.StorageDriver.Stat(ctx, name)
	}

	made := s.layout.made
	if made.IsZero() {
		made = time.Unix(0, 0)
	}

	return driver.FileInfoInternal{FileInfoFields: driver.FileInfoFields{
		Path:    name,
		Size:    e.size,
		ModTime: made,
		IsDir:   e.isDir(),
	}}, nil
}

// List implements driver.StorageDriver: what either place has, sorted.
func (s *storageDriver) List(ctx context.Context, name string) ([]string, error) {
	pushed, err := s.StorageDriver.List(ctx, name)
	e := s.layout.entries[name]
	if e == nil || !e.isDir() {
		return pushed, err
	}

	var nothing driver.PathNotFoundError
	if err != nil && !errors.As(err, &nothing) {
		return nil, err
	}

	all := slices.Concat(e.children, pushed)
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Walk implements driver.StorageDriver.
func (s *storageDriver) Walk(
	ctx context.Context,
	from string,
	f driver.WalkFn,
	options ...func(*driver.WalkOptions),
) error {
	return driver.WalkFallback(ctx, s, from, f, options...)
}

// RedirectURL implements driver.StorageDriver: everything is served from here.
func (s *storageDriver) RedirectURL(*http.Request, string) (string, error) { return "", nil }

// existingDriver hands a driver that exists already to the registry library, which only takes a name and
// parameters.
type existingDriver struct{}

const driverParameter = "driver"

// Create implements factory.StorageDriverFactory.
func (existingDriver) Create(_ context.Context, parameters map[string]any) (driver.StorageDriver, error) {
	d, ok := parameters[driverParameter].(driver.StorageDriver)
	if !ok {
		return nil, fmt.Errorf("create storage: no driver was given")
	}
	return d, nil
}

// register makes the library's name for made known once per process, as the library demands, and
// ends its chatter: a line for every request, an error for every image that is asked for before it is
// pushed. What matters is logged by Server.
func register() {
	factory.Register("firstlight", existingDriver{})
	logrus.SetLevel(logrus.FatalLevel)
}
