package extents

import (
	"io"
	"os"

	"firstlight.dev/firstlight/assets/extent"
)

// Own is the content of a file of this machine with zeros for its shared extents.
type Own struct {
	Path   string
	Length int64
	Shared []extent.Extent
}

// Size is that of the whole file.
func (o Own) Size() int64 { return o.Length }

// Open reads it.
func (o Own) Open() (io.ReadCloser, error) {
	f, err := os.Open(o.Path)
	if err != nil {
		return nil, err
	}
	return &ownReader{file: f, left: o.Length, shared: o.Shared}, nil
}

type ownReader struct {
	file     *os.File
	at, left int64
	shared   []extent.Extent // those that do not end before at
}

func (r *ownReader) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}

	for len(r.shared) > 0 && r.shared[0].Offset+r.shared[0].Size <= r.at {
		r.shared = r.shared[1:]
	}

	b = b[:min(int64(len(b)), r.left)]
	n, err := 0, error(nil)
	switch {
	case len(r.shared) > 0 && r.shared[0].Offset <= r.at:
		n = int(min(int64(len(b)), r.shared[0].Offset+r.shared[0].Size-r.at))
		clear(b[:n])
	case len(r.shared) > 0:
		n, err = r.file.ReadAt(b[:min(int64(len(b)), r.shared[0].Offset-r.at)], r.at)
	default:
		n, err = r.file.ReadAt(b, r.at)
	}

	r.at, r.left = r.at+int64(n), r.left-int64(n)
	if n > 0 {
		err = nil
	}

	return n, err
}

func (r *ownReader) Close() error { return r.file.Close() }
