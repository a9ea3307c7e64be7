// Package ovsdb speaks to OVSDB servers (RFC 7047): the database of Open vSwitch on a node, and those of OVN. A CNI plugin
// runs where no program of theirs is, so it speaks the protocol itself.
package ovsdb

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Timeout bounds one call whose context has no deadline.
const Timeout = 20 * time.Second

// mostAnswer bounds what a server may answer to one call, in bytes.
const mostAnswer = 256 << 20

// Conn is a connection to a server, of one goroutine.
type Conn struct {
	conn  net.Conn
	in    *json.Decoder
	limit *io.LimitedReader
	calls int
}

// Dial connects to unix:PATH or, with a configuration, to ssl:HOST:PORT (the forms of ovsdb(7)).
func Dial(ctx context.Context, address string, config *tls.Config) (*Conn, error) {
	kind, at, _ := strings.Cut(address, ":")
	var conn net.Conn
	var err error
	switch {
	case kind == "unix":
		conn, err = (&net.Dialer{Timeout: Timeout}).DialContext(ctx, "unix", at)
	case kind == "ssl" && config != nil:
		conn, err = (&tls.Dialer{NetDialer: &net.Dialer{Timeout: Timeout}, Config: config}).DialContext(ctx, "tcp", at)
	default:
		err = errors.New("it is neither unix:PATH nor ssl:HOST:PORT with certificates")
	}
	if err != nil {
		return nil, fmt.Errorf("connect to database %s: %w", address, err)
	}

	limit := &io.LimitedReader{R: bufio.NewReader(conn), N: mostAnswer}
	return &Conn{conn: conn, in: json.NewDecoder(limit), limit: limit}, nil
}

// Close ends the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// message is a request or an answer (RFC 7047, 4).
type message struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// Call asks for a method and returns its result. The control sockets of the programs speak the same protocol.
func (c *Conn) Call(ctx context.Context, method string, params ...any) (json.RawMessage, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(Timeout)
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	c.calls++
	if params == nil {
		params = []any{}
	}
	request := map[string]any{"method": method, "params": params, "id": c.calls}
	if err := c.send(request); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	result, err := c.receive(c.calls)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return result, nil
}

func (c *Conn) send(m any) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = c.conn.Write(text)
	return err
}

// receive waits for the answer to a call. A server may ask in between whether this side is there (RFC 7047, 4.1.11).
func (c *Conn) receive(id int) (json.RawMessage, error) {
	c.limit.N = mostAnswer
	for {
		var m message
		if err := c.in.Decode(&m); err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		if m.Method == "echo" {
			if err := c.send(map[string]any{"result": m.Params, "error": nil, "id": m.ID}); err != nil {
				return nil, err
			}
			continue
		}
		if m.Method != "" || string(m.ID) != fmt.Sprint(id) {
			continue
		}
		if len(m.Error) > 0 && string(m.Error) != "null" {
			return nil, fmt.Errorf("the server refuses it: %s", m.Error)
		}
		return m.Result, nil
	}
}

// Result is what one operation of a transaction came to.
type Result struct {
	Count   int    `json:"count"` // of rows that were changed or deleted
	Rows    []Row  `json:"rows"`  // of a select
	UUID    UUID   `json:"uuid"`  // of an insert
	Error   string `json:"error"`
	Details string `json:"details"`
}

// Transact does operations of a database: all, or none.
func (c *Conn) Transact(ctx context.Context, database string, operations ...Operation) ([]Result, error) {
	params := []any{database}
	for _, o := range operations {
		params = append(params, o)
	}
	text, err := c.Call(ctx, "transact", params...)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", database, err)
	}

	var results []Result // of operations after one that failed it is null; what fails at the end comes after the last
	if err := json.Unmarshal(text, &results); err != nil {
		return nil, fmt.Errorf("database %s: read the results: %w", database, err)
	}
	for _, r := range results {
		if r.Error != "" {
			return nil, fmt.Errorf("database %s: %s: %s", database, r.Error, r.Details)
		}
	}
	if len(results) < len(operations) {
		return nil, fmt.Errorf("database %s: %d results of %d operations", database, len(results), len(operations))
	}
	return results, nil
}

// Transact connects for one transaction.
func Transact(
	ctx context.Context, address string, config *tls.Config, database string, operations ...Operation,
) ([]Result, error) {
	c, err := Dial(ctx, address, config)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Transact(ctx, database, operations...)
}
