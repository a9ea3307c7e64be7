// Package shell asks an installed node, over SSH, how it sees itself: its links, addresses
// and clock, and whether its routers and resolvers answer it. It trusts no host key but the
// one that was minted for the node, and runs plain commands of any Linux.
package shell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"firstlight.dev/firstlight/assets/excerpt"
	"firstlight.dev/firstlight/daemon/metal/verify/netprobe"
)

// Target is a node and how to log in to it.
type Target struct {
	Name      string
	Addresses []netip.Addr // at which it may be; the first that answers is taken
	Port      uint16       // 0: 22
	User      string
	Key       ssh.Signer    // the appliance's
	HostKey   ssh.PublicKey // the node's; nothing else is spoken to, and nobody if it is nil

	Routers   []netip.Addr // that it is to ask
	Resolvers []netip.Addr
}

// Verdict is what became of asking.
type Verdict string

const (
	Reached      Verdict = "reached"  // it said what is in Report
	Silent       Verdict = "silent"   // nothing answers at any of its addresses
	OtherMachine Verdict = "stranger" // a machine with another host key answers
	Locked       Verdict = "locked"   // it refuses the appliance's key
	Odd          Verdict = "odd"      // logged in, and the commands did not work
)

// Answer is what was found out. The zero Answer says that nothing was asked yet.
type Answer struct {
	Verdict  Verdict
	Text     string     // for people
	Address  netip.Addr // that answered
	Report   Report
	AskedAt  time.Time         // of the appliance's clock, in the middle of the question
	Doubt    time.Duration     // by how much the two clocks' difference may be off
	Question netprobe.Question // that the resolvers were asked
}

const (
	dialLimit = 15 * time.Second
	askLimit  = 2 * time.Minute // for all commands; a small node under load takes its time
)

// Ask logs in once and asks. It returns after three minutes at most.
func Ask(ctx context.Context, t Target) Answer {
	conn, a := login(ctx, t)
	if conn == nil {
		return a
	}
	defer conn.Close()

	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	watch := time.AfterFunc(askLimit, func() { conn.Close() })
	defer watch.Stop()

	// The clock first and alone, so that little time passes between question and answer.
	begun := time.Now()
	if _, err := run(conn, "true", ""); err != nil {
		return oddAnswer(a, err)
	}

	trip := time.Since(begun)
	sent := time.Now()
	a.Question = netprobe.NewQuestion()
	text, err := run(conn, commandLine(t, a.Question), script)
	if err != nil && text == "" {
		return oddAnswer(a, err)
	}
	if a.Report, err = parse(text); err != nil {
		return oddAnswer(a, err)
	}

	a.Verdict, a.AskedAt, a.Doubt = Reached, sent.Add(trip/2), trip
	a.overTCP(conn)
	return a
}

// Output logs in once and returns what a POSIX shell script printed there, a megabyte at most.
func Output(ctx context.Context, t Target, script string) ([]byte, error) {
	conn, a := login(ctx, t)
	if conn == nil {
		return nil, errors.New(a.Text)
	}
	defer conn.Close()

	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	watch := time.AfterFunc(askLimit, func() { conn.Close() })
	defer watch.Stop()
	text, err := run(conn, "sh", script)
	return []byte(text), err
}

func oddAnswer(a Answer, err error) Answer {
	a.Verdict, a.Text = Odd, fmt.Sprintf(
		"it lets the appliance in at %s, but its shell does not answer as Linux does: %s", a.Address, excerpt.Line(err.Error()),
	)
	return a
}

// commandLine is the script with its arguments. None of them comes from the node.
func commandLine(t Target, q netprobe.Question) string {
	words := []string{"sh", "-s", "--", "'" + octalEscape(q.Packet()) + "'"}
	for _, r := range t.Routers {
		words = append(words, r.String())
	}

	words = append(words, "--")
	for _, r := range t.Resolvers {
		words = append(words, r.String())
	}

	return strings.Join(words, " ")
}

// run runs a command in a session of its own, with input on its standard input.
func run(conn *ssh.Client, command, input string) (string, error) {
	session, err := conn.NewSession()
	if err != nil {
		return "", fmt.Errorf("open session: %w", err)
	}
	defer session.Close()

	var out, said bytes.Buffer
	session.Stdin, session.Stdout, session.Stderr = strings.NewReader(input), limitedBuffer{&out}, limitedBuffer{&said}
	if err := session.Run(command); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, tail(said.String(), 200))
	}

	return out.String(), nil
}

// limitedBuffer takes a megabyte and swallows the rest: the node may be anything.
type limitedBuffer struct{ b *bytes.Buffer }

func (l limitedBuffer) Write(p []byte) (int, error) {
	if room := 1<<20 - l.b.Len(); room > 0 {
		l.b.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

// overTCP asks resolvers that gave no answer by UDP once more, by TCP through the node (SSH
// forwarding): a node without bash cannot send the packet itself.
func (a *Answer) overTCP(conn *ssh.Client) {
	for server, answer := range a.Report.DNS {
		if answer != nil {
			continue
		}

		c, err := conn.Dial("tcp", netip.AddrPortFrom(server, 53).String())
		if err != nil {
			continue
		}

		packet := a.Question.Packet()
		_, err = c.Write(append([]byte{0, byte(len(packet))}, packet...))
		var length [2]byte
		if err == nil {
			_, err = io.ReadFull(c, length[:])
		}

		answer = make([]byte, int(length[0])<<8|int(length[1]))
		if err == nil {
			_, err = io.ReadFull(c, answer)
		}

		c.Close()
		if err == nil {
			a.Report.DNS[server] = answer
		}
	}
}

// login tries all addresses at once and returns the first connection, or what came of the
// most telling failure.
func login(ctx context.Context, t Target) (*ssh.Client, Answer) {
	if len(t.Addresses) == 0 {
		return nil, Answer{Verdict: Silent, Text: "no address of it is known yet"}
	}

	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	var mu sync.Mutex
	var first *ssh.Client
	var worst Answer
	var wg sync.WaitGroup
	for _, address := range t.Addresses {
		wg.Go(func() {
			conn, a := loginAt(ctx, t, address)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case conn != nil && first != nil:
				conn.Close()
			case conn != nil:
				first, worst = conn, a
				cancel()
			case first == nil && (worst.Verdict == "" || worst.Verdict == Silent):
				worst = a
			}
		})
	}

	wg.Wait()
	return first, worst
}

func loginAt(ctx context.Context, t Target, address netip.Addr) (*ssh.Client, Answer) {
	port := t.Port
	if port == 0 {
		port = 22
	}

	at := netip.AddrPortFrom(address, port)
	a := Answer{Address: address}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		a.Verdict, a.Text = Silent, "nothing answers SSH at "+address.String()
		return nil, a
	}

	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}

	if t.HostKey == nil {
		c.Close()
		a.Verdict, a.Text = OtherMachine, fmt.Sprintf(
			"at %s something answers SSH, and the host key of %s is not known: no ramdisk of this appliance has told it",
			address, t.Name,
		)
		return nil, a
	}

	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	stranger := false
	conn, channels, requests, err := ssh.NewClientConn(c, at.String(), &ssh.ClientConfig{
		User: t.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(t.Key)}, HostKeyAlgorithms: []string{t.HostKey.Type()},
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if !bytes.Equal(key.Marshal(), t.HostKey.Marshal()) {
				stranger = true
				return errors.New("another host key")
			}
			return nil
		},
	})
	if err == nil {
		_ = c.SetDeadline(time.Time{})
		return ssh.NewClient(conn, channels, requests), a
	}

	c.Close()
	var negotiation *ssh.AlgorithmNegotiationError
	switch {
	case stranger, errors.As(err, &negotiation):
		a.Verdict = OtherMachine
		a.Text = fmt.Sprintf(
			"at %s another machine answers, or another system: its SSH host key is not the one that was made for %s",
			address, t.Name,
		)
	case strings.Contains(err.Error(), "unable to authenticate"):
		a.Verdict, a.Text = Locked, fmt.Sprintf(
			"at %s it does not let the appliance's key in as user %s: its first boot is still at work, or failed (see its console)",
			address, t.User,
		)
	default:
		a.Verdict, a.Text = Silent, fmt.Sprintf("at %s something listens that does not answer as SSH does", address)
	}

	return nil, a
}
