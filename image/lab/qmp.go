package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
)

// QMP speaks QEMU's machine protocol (docs/interop/qmp-spec): one JSON object per line.
type QMP struct {
	conn    net.Conn
	enc     *json.Encoder
	mu      sync.Mutex // one command at a time
	replies chan qmpMessage
	events  chan Event
	done    chan struct{}
}

// Event is something QEMU tells unasked, for example SHUTDOWN or RESET.
type Event struct {
	Name string          `json:"event"`
	Data json.RawMessage `json:"data"`
}

type qmpMessage struct {
	Event
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Greeting json.RawMessage `json:"QMP"`
}

// dialQMP connects to the socket, which QEMU makes shortly after it starts.
func dialQMP(ctx context.Context, path string) (*QMP, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			q := &QMP{
				conn:    conn,
				enc:     json.NewEncoder(conn),
				replies: make(chan qmpMessage, 1),
				events:  make(chan Event, 64),
				done:    make(chan struct{}),
			}
			go q.read()
			if err := q.Execute(ctx, "qmp_capabilities", nil, nil); err != nil {
				conn.Close()
				return nil, err
			}

			return q, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("connect QMP %s: %w (%w)", path, ctx.Err(), err)
		}
	}
}

// read ends when the connection does.
func (q *QMP) read() {
	defer close(q.done)
	defer close(q.events)
	dec := json.NewDecoder(q.conn)
	for {
		var m qmpMessage
		if err := dec.Decode(&m); err != nil {
			return
		}
		switch {
		case m.Greeting != nil:
		case m.Name != "":
			select {
			case q.events <- m.Event:
			default: // nobody reads: the newest are dropped, commands go on
			}
		default:
			q.replies <- m
		}
	}
}

// Execute runs one command; args and result may be nil.
func (q *QMP) Execute(ctx context.Context, name string, args, result any) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	cmd := map[string]any{"execute": name}
	if args != nil {
		cmd["arguments"] = args
	}

	if err := q.enc.Encode(cmd); err != nil {
		return fmt.Errorf("qmp %s: %w", name, err)
	}

	select {
	case m := <-q.replies:
		if m.Error != nil {
			return fmt.Errorf("qmp %s: %s: %s", name, m.Error.Class, m.Error.Desc)
		}
		if result == nil {
			return nil
		}
		if err := json.Unmarshal(m.Return, result); err != nil {
			return fmt.Errorf("qmp %s: %w", name, err)
		}

		return nil
	case <-q.done:
		return fmt.Errorf("qmp %s: the machine ended", name)
	case <-ctx.Done():
		return fmt.Errorf("qmp %s: %w", name, ctx.Err())
	}
}

// Events returns what QEMU reports; the channel is closed when the machine ends.
func (q *QMP) Events() <-chan Event { return q.events }

// Close drops the connection; the machine goes on.
func (q *QMP) Close() error { return q.conn.Close() }
