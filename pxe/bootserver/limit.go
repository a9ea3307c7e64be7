package bootserver

import (
	"net"
	"sync"
)

// limited accepts no more connections than free has room for; the rest wait in the
// kernel's queue, where they cost us nothing, and silent ones are cut by the timeouts.
type limited struct {
	net.Listener
	free chan struct{}
	end  chan struct{}
	once sync.Once
}

func limit(listener net.Listener, connections int) *limited {
	return &limited{Listener: listener, free: make(chan struct{}, connections), end: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.end:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &countedTCP{TCPConn: tcp, release: func() { <-l.free }}, nil
	}
	return &counted{Conn: conn, release: func() { <-l.free }}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.end) })
	return l.Listener.Close()
}

type counted struct {
	net.Conn
	once    sync.Once
	release func()
}

func (c *counted) Close() error {
	defer c.once.Do(c.release)
	return c.Conn.Close()
}

// countedTCP keeps the methods of a TCP connection: without its ReadFrom there is no sendfile.
type countedTCP struct {
	*net.TCPConn
	once    sync.Once
	release func()
}

func (c *countedTCP) Close() error {
	defer c.once.Do(c.release)
	return c.TCPConn.Close()
}
