package virtualrack

import (
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"firstlight.dev/firstlight/image/lab/endpoint"
)

// zone is the rack's own; every other name does not exist, since nothing else can be reached.
const zone = "lab."

// serveNames answers DNS until the endpoint is unplugged.
func serveNames(st *endpoint.Endpoint, at netip.AddrPort) error {
	conn, err := st.ListenPacket(at)
	if err != nil {
		return err
	}

	go func() {
		buf := make([]byte, 1500)
		for {
			n, client, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := answerName(buf[:n], at.Addr()); answer != nil {
				_, _ = conn.WriteTo(answer, client)
			}
		}
	}()

	return nil
}

// answerName answers a question: with the gateway's address for a name of the zone, else that
// there is no such name; nil for what is no question.
func answerName(query []byte, gateway netip.Addr) []byte {
	var p dnsmessage.Parser
	head, err := p.Start(query)
	if err != nil || head.Response {
		return nil
	}

	q, err := p.Question()
	if err != nil {
		return nil
	}

	reply := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID:               head.ID,
			Response:         true,
			Authoritative:    true,
			RecursionDesired: head.RecursionDesired,
		},
		Questions: []dnsmessage.Question{q},
	}
	name := strings.ToLower(q.Name.String())
	switch {
	case name != zone && !strings.HasSuffix(name, "."+zone):
		reply.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		reply.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 60},
			Body:   &dnsmessage.AResource{A: gateway.As4()},
		}}
	}

	answer, err := reply.Pack()
	if err != nil {
		return nil
	}

	return answer
}
