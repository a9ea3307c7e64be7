package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// socketBuffer is what may lie in a socket, in octets; a unix socket's does not grow by itself. The kernel gives as
// much of it as it allows.
const socketBuffer = 1 << 20

// dialSocket returns a dialer of a unix socket, whatever address it is asked for.
func dialSocket(path string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			return nil, fmt.Errorf("dial store: %w", err)
		}
		u, ok := c.(*net.UnixConn)
		if !ok {
			return nil, errors.Join(fmt.Errorf("dial store: %s is no unix socket", path), c.Close())
		}
		if err := u.SetWriteBuffer(socketBuffer); err != nil {
			return nil, errors.Join(fmt.Errorf("dial store: %w", err), c.Close())
		}
		return socket{u}, nil
	}
}

// socket has the kernel move files into it. A TCP connection of package net does so when it is given a
// piece of a file; a unix socket only when it is given the file.
type socket struct{ *net.UnixConn }

// ReadFrom implements io.ReaderFrom.
func (s socket) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok && allOfFile(l) {
		n, err := io.Copy(s.UnixConn, l.R) // os.File.WriteTo
		l.N -= n
		return n, err
	}
	return io.Copy(struct{ io.Writer }{s.UnixConn}, r)
}

// allOfFile tells whether a reader reads a file to its end, which no limit then needs to say.
func allOfFile(l *io.LimitedReader) bool {
	f, ok := l.R.(*os.File)
	if !ok {
		return false
	}
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return false
	}
	at, err := f.Seek(0, io.SeekCurrent)
	return err == nil && fi.Size()-at == l.N
}
