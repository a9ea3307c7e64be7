package s3api

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// What X-Amz-Content-Sha256 is if it is no sha256.
const (
	unsignedPayload  = "UNSIGNED-PAYLOAD"
	signedChunks     = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
	signedTrailer    = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
	unsignedTrailer  = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	checksumPrefix   = "x-amz-checksum-"
	trailerSignature = "x-amz-trailer-signature"
)

// maxLine bounds a chunk's head and a trailer's line, in octets.
const maxLine = 4 << 10

// payload is a request's body: what is in the chunks, if it comes in chunks. It ends with io.EOF only if all digests
// that the client sent are right.
type payload struct {
	length int64 // octets of what is read; -1 if the client did not say
	from   io.Reader
	checks []check
	chunks *chunkReader // nil: no chunks
	ended  error
}

// check is one digest that the client sent, or will send in a trailer.
type check struct {
	name string
	hash hash.Hash
	want []byte // nil: it is in the trailer
}

// The checksums of x-amz-checksum-*; the polynomial of crc64nvme is that of NVM Express, reflected.
func newChecksum(name string) hash.Hash {
	switch name {
	case "crc32":
		return crc32.NewIEEE()
	case "crc32c":
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case "crc64nvme":
		return crc64.New(crc64.MakeTable(0x9a6c9329ac4bc9b5))
	case "sha1":
		return sha1.New()
	case "sha256":
		return sha256.New()
	}
	return nil
}

// body is the request's body, which the signature says how to read.
func (s signature) body(r *http.Request, secret string) (*payload, error) {
	p := &payload{length: r.ContentLength, from: r.Body}
	switch s.payload {
	case unsignedPayload:
	case signedChunks, signedTrailer, unsignedTrailer:
		p.chunks = &chunkReader{
			from:     bufio.NewReaderSize(r.Body, maxLine),
			isSigned: s.payload != unsignedTrailer,
			trailed:  s.payload != signedChunks,
			sign:     func(text string) string { return s.sign(secret, text) },
			head:     s.time.Format(timeFormat) + "\n" + s.scopeText() + "\n",
			last:     s.sum,
			chunk:    sha256.New(),
		}
		p.from = p.chunks
		n, err := strconv.ParseInt(r.Header.Get("X-Amz-Decoded-Content-Length"), 10, 64)
		if err != nil || n < 0 {
			return nil, newFailure(http.StatusLengthRequired, "MissingContentLength", "X-Amz-Decoded-Content-Length is missing")
		}
		p.length = n
	default:
		want, err := hex.DecodeString(s.payload)
		if err != nil || len(want) != sha256.Size {
			return nil, newFailure(http.StatusBadRequest, "InvalidRequest", "X-Amz-Content-Sha256 %q is not known", s.payload)
		}
		p.checks = append(p.checks, check{"X-Amz-Content-Sha256", sha256.New(), want})
	}

	return p, p.addChecks(r)
}

// addChecks finds the digests that a client announces.
func (p *payload) addChecks(r *http.Request) error {
	if text := r.Header.Get("Content-Md5"); text != "" {
		want, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(want) != md5.Size {
			return newFailure(http.StatusBadRequest, "InvalidDigest", "Content-MD5 is no MD5")
		}
		p.checks = append(p.checks, check{"Content-MD5", md5.New(), want})
	}

	for header, values := range r.Header {
		name, ok := strings.CutPrefix(strings.ToLower(header), checksumPrefix)
		h := newChecksum(name)
		if !ok || h == nil {
			continue
		}

		want, err := base64.StdEncoding.DecodeString(values[0])
		if err != nil || len(want) != h.Size() {
			return newFailure(http.StatusBadRequest, "InvalidRequest", "%s is no such checksum", header)
		}
		p.checks = append(p.checks, check{header, h, want})
	}

	for name := range strings.SplitSeq(strings.ToLower(r.Header.Get("X-Amz-Trailer")), ",") {
		kind, ok := strings.CutPrefix(strings.TrimSpace(name), checksumPrefix)
		if h := newChecksum(kind); ok && h != nil {
			p.checks = append(p.checks, check{checksumPrefix + kind, h, nil})
		}
	}

	return nil
}

// announcedSHA256 is the content's digest, if the client said it before the body; "" otherwise.
func (p *payload) announcedSHA256() string {
	for _, c := range p.checks {
		if len(c.want) == sha256.Size {
			return hex.EncodeToString(c.want)
		}
	}
	return ""
}

func (p *payload) Read(b []byte) (int, error) {
	if p.ended != nil {
		return 0, p.ended
	}

	n, err := p.from.Read(b)
	for _, c := range p.checks {
		c.hash.Write(b[:n])
	}
	if errors.Is(err, io.EOF) {
		err = p.checkDigests()
	}

	p.ended = err
	return n, err
}

// checkDigests is io.EOF if all digests are right.
func (p *payload) checkDigests() error {
	for _, c := range p.checks {
		want := c.want
		if want == nil {
			want, _ = base64.StdEncoding.DecodeString(p.chunks.trailer(c.name))
		}
		if !bytes.Equal(want, c.hash.Sum(nil)) {
			return newFailure(http.StatusBadRequest, "BadDigest", "%s is not that of the body; nothing is kept", c.name)
		}
	}
	return io.EOF
}

// chunkReader reads aws-chunked: chunks that are signed each, or have a trailer, or both ("Signature Calculations for
// the Authorization Header: Transferring Payload in Multiple Chunks").
type chunkReader struct {
	from     *bufio.Reader
	isSigned bool
	trailed  bool
	sign     func(text string) string
	head     string // of each text that is signed
	last     string // signature of what came before

	left     int64 // of the chunk
	inside   bool  // a chunk has begun
	chunk    hash.Hash
	expected string // signature of the chunk
	trailers map[string]string
	done     bool
}

func (c *chunkReader) trailer(name string) string { return c.trailers[name] }

func (c *chunkReader) Read(b []byte) (int, error) {
	for c.left == 0 {
		if c.done {
			return 0, io.EOF
		}
		if err := c.next(); err != nil {
			return 0, err
		}
	}

	n, err := c.from.Read(b[:min(int64(len(b)), c.left)])
	c.chunk.Write(b[:n])
	c.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}

	return n, err
}

// next ends the chunk before and reads the head of the next one.
func (c *chunkReader) next() error {
	if c.inside {
		if line, err := c.line(); err != nil || line != "" {
			return errors.Join(malformedError("a chunk does not end where it should"), err)
		}
		if err := c.verifyChunk(); err != nil {
			return err
		}
	}

	line, err := c.line()
	if err != nil {
		return err
	}

	size, extension, _ := strings.Cut(line, ";")
	n, err := strconv.ParseInt(size, 16, 64)
	if err != nil || n < 0 {
		return malformedError("%q is not the size of a chunk", size)
	}

	c.left, c.inside, c.expected = n, true, strings.TrimPrefix(extension, "chunk-signature=")
	c.chunk.Reset()
	if n > 0 {
		return nil
	}

	c.done = true
	if err := c.verifyChunk(); err != nil {
		return err
	}

	return c.end()
}

// verifyChunk compares the signature of the chunk that was read.
func (c *chunkReader) verifyChunk() error {
	if !c.isSigned {
		return nil
	}

	want := c.sign(algorithm + "-PAYLOAD\n" + c.head + c.last + "\n" + emptySum + "\n" + hex.EncodeToString(c.chunk.Sum(nil)))
	if !hmac.Equal([]byte(want), []byte(c.expected)) {
		return newFailure(http.StatusForbidden, "SignatureDoesNotMatch", "the signature of a chunk is not that of this key's secret")
	}

	c.last = want
	return nil
}

// end reads what follows the last chunk: trailers, their signature, an empty line.
func (c *chunkReader) end() error {
	c.trailers = map[string]string{}
	var signed strings.Builder
	for lines := 0; ; lines++ {
		line, err := c.line()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			break // some clients leave the empty line out
		}
		if err != nil {
			return err
		}
		// Trailers that are signed end with an empty line of their own, before their signature.
		if _, isOver := c.trailers[trailerSignature]; line == "" && c.isSigned && c.trailed && !isOver && lines < 4 {
			continue
		}
		if line == "" {
			break
		}

		name, value, ok := strings.Cut(line, ":")
		if name = strings.ToLower(name); !ok || !c.trailed || len(c.trailers) > 16 {
			return malformedError("there is no trailer %q", line)
		}

		c.trailers[name] = strings.TrimSpace(value)
		if name != trailerSignature {
			signed.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
		}
	}

	if !c.isSigned || !c.trailed {
		return nil
	}

	sum := sha256.Sum256([]byte(signed.String()))
	want := c.sign(algorithm + "-TRAILER\n" + c.head + c.last + "\n" + hex.EncodeToString(sum[:]))
	if !hmac.Equal([]byte(want), []byte(c.trailers[trailerSignature])) {
		return newFailure(http.StatusForbidden, "SignatureDoesNotMatch", "the signature of the trailers is not that of this key's secret")
	}

	return nil
}

// line reads up to CRLF.
func (c *chunkReader) line() (string, error) {
	text, err := c.from.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", malformedError("a chunk's head is longer than %d bytes", maxLine)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return strings.TrimRight(string(text), "\r\n"), err
}

func malformedError(format string, args ...any) error {
	return newFailure(http.StatusBadRequest, "IncompleteBody", format, args...)
}
