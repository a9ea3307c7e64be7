package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// monitor speaks QEMU's machine protocol (docs/interop/qmp-spec.rst): JSON objects, one command at a time.
type monitor struct {
	conn    net.Conn
	mu      sync.Mutex
	answers chan answer
	log     func(event string)
}

type answer struct {
	Greeting json.RawMessage `json:"QMP"`
	Event    string          `json:"event"`
	Return   json.RawMessage `json:"return"`
	Error    *struct {
		Description string `json:"desc"`
	} `json:"error"`
}

// answerTimeout is how long a busy QEMU may take.
const answerTimeout = 5 * time.Second

// newMonitor takes a connection that QEMU opened; log gets the names of events.
func newMonitor(conn net.Conn, log func(event string)) (*monitor, error) {
	m := &monitor{conn: conn, answers: make(chan answer), log: log}
	go m.read()
	return m, m.execute("qmp_capabilities")
}

// read ends with the connection.
func (m *monitor) read() {
	defer close(m.answers)
	for decoder := json.NewDecoder(m.conn); ; {
		var a answer
		if err := decoder.Decode(&a); err != nil {
			return
		}
		switch {
		case a.Greeting != nil:
		case a.Event != "":
			m.log(a.Event)
		default:
			select {
			case m.answers <- a:
			case <-time.After(answerTimeout): // to a command that nobody waits for any more
			}
		}
	}
}

// drain waits until QEMU has closed its connection: all that it reported was heard.
func (m *monitor) drain() {
	for range m.answers {
	}
}

func (m *monitor) execute(command string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, err := json.Marshal(map[string]string{"execute": command})
	if err != nil {
		return err
	}
	if _, err := m.conn.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("tell QEMU %s: %w", command, err)
	}

	select {
	case a, ok := <-m.answers:
		if !ok {
			return fmt.Errorf("tell QEMU %s: %w", command, errors.New("it has ended"))
		}
		if a.Error != nil {
			return fmt.Errorf("tell QEMU %s: %s", command, a.Error.Description)
		}
		return nil
	case <-time.After(answerTimeout):
		return fmt.Errorf("tell QEMU %s: no answer within %s", command, answerTimeout)
	}
}
