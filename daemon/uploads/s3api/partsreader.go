package s3api

import (
	"errors"
	"io"
	"os"
)

// partsReader reads files one after the other.
type partsReader struct {
	paths []string
	file  *os.File
}

func (r *partsReader) Read(b []byte) (n int, err error) {
	for {
		if r.file == nil {
			if len(r.paths) == 0 {
				return 0, io.EOF
			}
			if r.file, err = os.Open(r.paths[0]); err != nil {
				return 0, err
			}
			r.paths = r.paths[1:]
		}

		n, err = r.file.Read(b)
		if !errors.Is(err, io.EOF) {
			return n, err
		}

		r.file.Close()
		r.file = nil
		if n > 0 {
			return n, nil
		}
	}
}

func (r *partsReader) Close() {
	if r.file != nil {
		r.file.Close()
	}
}
