package tftp

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Opcodes of RFC 1350, section 5, and RFC 2347.
const (
	opRRQ   = 1
	opWRQ   = 2
	opDATA  = 3
	opACK   = 4
	opERROR = 5
	opOACK  = 6
)

// Error codes of RFC 1350, appendix I, and RFC 2347.
const (
	codeOther      = 0
	codeNotFound   = 1
	codeAccess     = 2
	codeIllegal    = 4
	codeUnknownTID = 5
	codeOptions    = 8
)

// maxRequest is the longest request understood. RFC 2347 allows 512 bytes; some
// firmware pads, so what follows the terminators is not looked at, but read.
const maxRequest = 1024

// The limits of RFC 2348 (blksize), RFC 2349 (timeout, seconds) and RFC 7440 (windowsize).
const (
	defaultBlock = 512
	minBlock     = 8
	maxBlock     = 65464
	maxTimeout   = 255
	maxWindow    = 65535
)

// refusal is an error that the client is told: an ERROR packet.
type refusal struct {
	code uint16
	text string
}

func (r *refusal) Error() string { return r.text }

// request is a parsed RRQ or WRQ. Options that were not asked for, or whose value is
// outside its RFC, are zero; asked lists the good ones in the order they came.
type request struct {
	write   bool
	name    string
	block   int
	window  int
	timeout int // seconds
	size    bool
	asked   []string
}

// parseRequest reads an RRQ or WRQ. The error is a *refusal.
func parseRequest(packet []byte) (request, error) {
	var r request
	if len(packet) < 2 {
		return r, &refusal{codeIllegal, "this is not a TFTP packet: it is shorter than 2 bytes"}
	}

	switch opcode := binary.BigEndian.Uint16(packet); opcode {
	case opRRQ:
	case opWRQ:
		r.write = true
	case opDATA, opACK, opOACK:
		return r, &refusal{codeUnknownTID, "no transfer was begun from this port"}
	default:
		return r, &refusal{codeIllegal, fmt.Sprintf("opcode %d is not one of TFTP", opcode)}
	}

	if len(packet) > maxRequest {
		return r, &refusal{codeIllegal, fmt.Sprintf("the request is longer than %d bytes", maxRequest)}
	}

	fields := strings.Split(string(packet[2:]), "\x00")
	if len(fields) < 3 { // name NUL mode NUL rest
		return r, &refusal{codeIllegal, "the request has no terminated file name and mode"}
	}

	r.name = fields[0]
	if mode := fields[1]; !strings.EqualFold(mode, "octet") {
		return r, &refusal{codeIllegal, "only mode octet is served"}
	}

	for rest := fields[2:]; len(rest) >= 3 && rest[0] != ""; rest = rest[2:] {
		r.option(strings.ToLower(rest[0]), rest[1]) // names compare without case (RFC 2347)
	}

	return r, nil
}

// option notes one option. What is unknown or out of range is left unanswered, which
// means "not granted" (RFC 2347) and lets the client go on with the default.
func (r *request) option(name, value string) {
	number, err := strconv.Atoi(value)
	if err != nil {
		return
	}

	switch {
	case name == "blksize" && r.block == 0 && number >= minBlock && number <= maxBlock:
		r.block = number
	case name == "windowsize" && r.window == 0 && number >= 1 && number <= maxWindow:
		r.window = number
	case name == "timeout" && r.timeout == 0 && number >= 1 && number <= maxTimeout:
		r.timeout = number
	case name == "tsize" && !r.size && number >= 0:
		r.size = true
	default:
		return
	}

	r.asked = append(r.asked, name)
}

// appendOACK writes the options granted.
func appendOACK(packet []byte, asked []string, values map[string]int64) []byte {
	packet = binary.BigEndian.AppendUint16(packet, opOACK)
	for _, name := range asked {
		packet = append(append(packet, name...), 0)
		packet = append(strconv.AppendInt(packet, values[name], 10), 0)
	}
	return packet
}

// appendError writes an ERROR packet. The text goes to a firmware console: it is cut to
// what one screen line or two can hold, and has no control characters.
func appendError(packet []byte, code uint16, text string) []byte {
	packet = binary.BigEndian.AppendUint16(packet, opERROR)
	packet = binary.BigEndian.AppendUint16(packet, code)
	for i, r := range text {
		if i >= 160 {
			break
		}
		if r < ' ' || r > '~' {
			r = '?'
		}
		packet = append(packet, byte(r))
	}

	return append(packet, 0)
}

// errorText reads the code and text of an ERROR packet for the log.
func errorText(packet []byte) (uint16, string) {
	if len(packet) < 4 {
		return 0, ""
	}
	text, _, _ := strings.Cut(string(packet[4:]), "\x00")
	return binary.BigEndian.Uint16(packet[2:]), strings.ToValidUTF8(text[:min(len(text), 100)], "?")
}
