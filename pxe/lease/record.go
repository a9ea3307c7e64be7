package lease

import (
	"bytes"
	"hash/crc32"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// A line of the journal is eight hex digits of CRC-32C over the rest, a space, and one of
//
//	A|F|D ADDRESS MAC SUBNET START-MS DURATION-MS ARCH "UUID" "HOSTNAME"
//	T TICK-MS BOOT-ID UPTIME-MS

type journalRecord struct {
	lease Lease
	clock *anchor
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumLen = 9 // eight digits and the space

func appendLease(b []byte, l Lease) []byte {
	b, start := beginLine(b)
	b = append(b, byte(l.State), ' ')
	b = append(l.Addr.AppendTo(b), ' ')
	b = append(append(b, l.MAC.String()...), ' ')
	b = append(l.Subnet.AppendTo(b), ' ')
	b = append(appendMS(b, time.Duration(l.Start)), ' ')
	b = append(appendMS(b, l.Duration), ' ')
	b = append(strconv.AppendUint(b, uint64(l.Arch), 10), ' ')
	b = append(strconv.AppendQuoteToASCII(b, l.UUID), ' ')
	b = strconv.AppendQuoteToASCII(b, l.Hostname)
	return endLine(b, start)
}

func appendClock(b []byte, a anchor) []byte {
	b, start := beginLine(b)
	b = append(b, 'T', ' ')
	b = append(appendMS(b, time.Duration(a.tick)), ' ')
	b = append(strconv.AppendQuoteToASCII(b, a.boot), ' ')
	b = appendMS(b, a.uptime)
	return endLine(b, start)
}

func beginLine(b []byte) ([]byte, int) { return append(b, "00000000 "...), len(b) }

func endLine(b []byte, start int) []byte {
	sum := crc32.Checksum(b[start+sumLen:], castagnoli)
	const digits = "0123456789abcdef"
	for i := range 8 {
		b[start+i] = digits[sum>>(28-4*i)&15]
	}

	return append(b, '\n')
}

func appendMS(b []byte, d time.Duration) []byte { return strconv.AppendInt(b, d.Milliseconds(), 10) }

// parseRecord reads a line without its end; false if it is torn or damaged.
func parseRecord(line []byte) (journalRecord, bool) {
	if len(line) < sumLen+2 || line[8] != ' ' {
		return journalRecord{}, false
	}

	sum, err := strconv.ParseUint(string(line[:8]), 16, 32)
	if err != nil || uint32(sum) != crc32.Checksum(line[sumLen:], castagnoli) {
		return journalRecord{}, false
	}

	f := fields{rest: line[sumLen:]}
	op := f.word()
	if op == "T" {
		a := anchor{tick: Tick(f.ms()), boot: f.quotedText(), uptime: f.ms()}
		return journalRecord{clock: &a}, !f.bad && len(f.rest) == 0
	}
	if len(op) != 1 || op != "A" && op != "F" && op != "D" {
		return journalRecord{}, false
	}

	l := Lease{
		State:    State(op[0]),
		Addr:     f.addr(),
		MAC:      f.mac(),
		Subnet:   f.prefix(),
		Start:    Tick(f.ms()),
		Duration: f.ms(),
		Arch:     uint16(f.number(16)),
		UUID:     f.quotedText(),
		Hostname: f.quotedText(),
	}
	return journalRecord{lease: l}, !f.bad && len(f.rest) == 0
}

// fields cuts a record at spaces; bad is set by the first field that does not parse.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) word() string {
	word, rest, _ := bytes.Cut(f.rest, []byte(" "))
	f.rest = rest
	return string(word)
}

func (f *fields) quotedText() string {
	q, err := strconv.QuotedPrefix(string(f.rest))
	if err != nil {
		f.bad = true
		return ""
	}

	f.rest = bytes.TrimPrefix(f.rest[len(q):], []byte(" "))
	s, err := strconv.Unquote(q)
	f.bad = f.bad || err != nil
	return s
}

func (f *fields) number(bits int) uint64 {
	n, err := strconv.ParseUint(f.word(), 10, bits)
	f.bad = f.bad || err != nil
	return n
}

func (f *fields) ms() time.Duration {
	n, err := strconv.ParseInt(f.word(), 10, 43) // fits a Duration
	f.bad = f.bad || err != nil
	return time.Duration(n) * time.Millisecond
}

func (f *fields) addr() netip.Addr {
	a, err := netip.ParseAddr(f.word())
	f.bad = f.bad || err != nil
	return a
}

func (f *fields) prefix() netip.Prefix {
	p, err := netip.ParsePrefix(f.word())
	f.bad = f.bad || err != nil
	return p
}

func (f *fields) mac() MAC {
	h, err := net.ParseMAC(f.word())
	m, ok := MACFrom(h)
	f.bad = f.bad || err != nil || !ok
	return m
}
