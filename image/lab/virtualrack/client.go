package virtualrack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"firstlight.dev/firstlight/image/lab/vswitch"
)

// Client asks the supervisor of the rack in Dir.
type Client struct {
	Dir string
}

// NotRunning says that nobody holds the rack at present.
var NotRunning = errors.New("the rack is down; `firstlight lab up` switches it on")

// connect opens the control socket. Its name may be longer than the kernel takes for a
// socket's; that of a directory's descriptor is short.
func (c Client) connect(ctx context.Context) (net.Conn, error) {
	if _, err := readRackDoc(c.Dir); err != nil {
		return nil, err
	}

	dir, err := os.Open(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("ask the rack: %w", err)
	}
	defer dir.Close()

	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), controlSocket))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Dir, NotRunning)
	}

	return conn, nil
}

func (c Client) do(ctx context.Context, method, path string, query url.Values, body, into any) error {
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.connect(ctx) }}}
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}

	request, err := http.NewRequestWithContext(
		ctx, method, "http://rack"+path+"?"+query.Encode(), bytes.NewReader(text),
	)
	if err != nil {
		return err
	}

	response, err := web.Do(request)
	if err != nil {
		err = errors.Unwrap(err) // without the method and the made-up URL
		if ctx.Err() == nil && !errors.Is(err, NoRack) && !errors.Is(err, NotRunning) {
			err = fmt.Errorf("%s: %w (%w)", c.Dir, NotRunning, err) // it ends at this moment
		}
		return err
	}
	defer response.Body.Close()

	answer, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("ask the rack: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(answer)))
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("read the rack's answer: %w", err)
	}

	return nil
}

// Status asks how everything stands.
func (c Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.do(ctx, http.MethodGet, "/v1/status", nil, nil, &s)
}

// All stands for every machine of a rack where a button is pressed.
const All = "all"

// Press presses a button of a machine, or of All: on, off (cuts the power), reset, button (asks
// the system to end), pause and resume (stop its time, and let it go on).
func (c Client) Press(ctx context.Context, machine, button string) error {
	return c.do(ctx, http.MethodPost, "/v1/power", url.Values{"machine": {machine}, "button": {button}}, nil, nil)
}

// Bounds of a share. With less a machine's own clocks run away from it.
const (
	leastShare = 0.01
	mostShare  = 1024
)

// CheckShare refuses a share that no machine can have; 0 is none.
func CheckShare(share float64) error {
	if share == 0 || share >= leastShare && share <= mostShare {
		return nil
	}
	return fmt.Errorf("%v processors; want %v to %v, or 0 for as many as it wants", share, leastShare, mostShare)
}

// Throttle gives a machine, or each of All, a share of this computer's processors: 0.5 is half of one; 0 frees it. It
// counts until the rack goes down, and through the machine's power on and off.
func (c Client) Throttle(ctx context.Context, machine string, share float64) error {
	query := url.Values{"machine": {machine}, "share": {strconv.FormatFloat(share, 'g', -1, 64)}}
	return c.do(ctx, http.MethodPost, "/v1/throttle", query, nil, nil)
}

// SetFault changes what is wrong with a machine's cables.
func (c Client) SetFault(ctx context.Context, machine string, which Cables, f vswitch.Fault) error {
	query := url.Values{"machine": {machine}, "network": {which.Network}, "card": {strconv.Itoa(which.Card)}}
	return c.do(ctx, http.MethodPost, "/v1/cable", query, f, nil)
}

// Dial connects to a TCP port of a machine, by its name or an address of the rack.
func (c Client) Dial(ctx context.Context, host, port string) (net.Conn, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}

	query := url.Values{"host": {host}, "port": {port}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://rack/v1/dial?"+query.Encode(), nil)
	if err == nil {
		err = request.Write(conn)
	}

	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("dial %s: %w", host, err)
	}

	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, request)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("dial %s: %w", host, err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
		conn.Close()
		return nil, fmt.Errorf("dial %s: %s", host, strings.TrimSpace(string(text)))
	}

	return &bufferedConn{conn, in}, nil
}

// bufferedConn reads first what came with the answer.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func (d *bufferedConn) Read(p []byte) (int, error) { return d.in.Read(p) }

// Rack is what the rack is.
func (c Client) Rack() (Rack, error) {
	m, err := readRackDoc(c.Dir)
	if err != nil {
		return Rack{}, err
	}
	return Plan(m.Order), nil
}

// Run is what was decided for the rack's run at present, or its last.
func (c Client) Run() (Run, error) {
	m, err := readRackDoc(c.Dir)
	return m.Run, err
}

// Console is the path of a machine's serial log.
func (c Client) Console(machine string) (string, error) {
	r, err := c.Rack()
	if err != nil {
		return "", err
	}
	if _, err := r.Find(machine); err != nil {
		return "", err
	}

	return filepath.Join(c.Dir, machinesDir, machine, "console.log"), nil
}

// SSH are the arguments for the ssh command that lead to a machine, or to System.
func (c Client) SSH(machine string) ([]string, error) {
	r, err := c.Rack()
	if err != nil {
		return nil, err
	}
	if _, err := r.Find(machine); err != nil && (machine != System || r.Order.System == "") {
		return nil, err
	}
	return []string{"ssh", "-F", filepath.Join(c.Dir, sshDir, configFile), machine}, nil
}
