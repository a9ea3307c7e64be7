package s3api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Signature version 4 of AWS, in the header Authorization ("Authenticating Requests", Amazon S3 API Reference).
const (
	algorithm  = "AWS4-HMAC-SHA256"
	timeFormat = "20060102T150405Z"
	maxSkew    = 15 * time.Minute
	emptySum   = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// signature is what a request says of who signed it.
type signature struct {
	access  string
	scope   [4]string // date, region, service, aws4_request
	signed  []string  // names of headers, lower case
	sum     string
	time    time.Time
	payload string // sha256 of the body, or how it is signed
}

// accessKeyOf is for the log; "" if there is none.
func accessKeyOf(r *http.Request) string {
	sig, err := parseSignature(r)
	if err != nil {
		return ""
	}
	return sig.access
}

// parseSignature reads the headers; nothing is believed yet.
func parseSignature(r *http.Request) (s signature, err error) {
	refuse := func(code, format string, args ...any) (signature, error) {
		return signature{}, newFailure(http.StatusForbidden, code, format, args...)
	}
	text, ok := strings.CutPrefix(r.Header.Get("Authorization"), algorithm+" ")
	if !ok {
		return refuse("AccessDenied", "sign the request with a key of the appliance's (%s, in the header Authorization)", algorithm)
	}

	var credential string
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "Credential":
			credential = value
		case "SignedHeaders":
			s.signed = strings.Split(value, ";")
		case "Signature":
			s.sum = value
		}
	}

	words := strings.Split(credential, "/")
	if len(words) != 5 || words[3] != "s3" || words[4] != "aws4_request" {
		return refuse("AuthorizationHeaderMalformed", "Credential is not ACCESSKEY/DATE/REGION/s3/aws4_request")
	}

	s.access, s.scope = words[0], [4]string(words[1:])
	s.payload = r.Header.Get("X-Amz-Content-Sha256")
	if s.time, err = time.Parse(timeFormat, r.Header.Get("X-Amz-Date")); err != nil {
		return refuse("AccessDenied", "X-Amz-Date is not a time such as 20261126T120000Z")
	}
	if s.payload == "" {
		return refuse("AccessDenied", "X-Amz-Content-Sha256 is missing")
	}

	return s, nil
}

// verify is nil if the secret signed the request as it came, not long ago.
func (s signature) verify(r *http.Request, secret string, now time.Time) error {
	if d := now.Sub(s.time); d > maxSkew || d < -maxSkew || s.time.Format("20060102") != s.scope[0] {
		return newFailure(http.StatusForbidden, "RequestTimeTooSkewed",
			"the request is of %s, and the appliance's clock is at %s; the appliance serves time on port 123",
			s.time.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	if !slices.Contains(s.signed, "host") {
		return newFailure(http.StatusForbidden, "AccessDenied", "the header host is not signed")
	}

	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-amz-") && !slices.Contains(s.signed, name) {
			return newFailure(http.StatusForbidden, "AccessDenied", "the header %s is not signed", name)
		}
	}

	request := sha256.Sum256([]byte(s.canonicalRequest(r)))
	want := s.sign(secret, algorithm+"\n"+s.time.Format(timeFormat)+"\n"+s.scopeText()+"\n"+hex.EncodeToString(request[:]))
	if !hmac.Equal([]byte(want), []byte(s.sum)) {
		return newFailure(http.StatusForbidden, "SignatureDoesNotMatch", "the signature is not that of this key's secret")
	}

	return nil
}

func (s signature) scopeText() string { return strings.Join(s.scope[:], "/") }

// sign signs a text with the key of the scope.
func (s signature) sign(secret, text string) string {
	key := []byte("AWS4" + secret)
	for _, word := range s.scope {
		key = hmacOf(key, word)
	}
	return hex.EncodeToString(hmacOf(key, text))
}

func hmacOf(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// canonicalRequest is the request as it is signed.
func (s signature) canonicalRequest(r *http.Request) string {
	var headers strings.Builder
	for _, name := range s.signed {
		values := slices.Clone(r.Header.Values(name))
		switch name {
		case "host":
			values = []string{r.Host}
		case "content-length":
			values = []string{strconv.FormatInt(r.ContentLength, 10)}
		}

		for i, v := range values {
			values[i] = strings.Join(strings.Fields(v), " ")
		}
		headers.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}

	return strings.Join([]string{
		r.Method, escape(r.URL.Path, true), canonicalQuery(r.URL.RawQuery), headers.String(),
		strings.Join(s.signed, ";"), s.payload,
	}, "\n")
}

func canonicalQuery(raw string) string {
	var pairs [][2]string
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}

		name, value, _ := strings.Cut(part, "=")
		pairs = append(pairs, [2]string{reescape(name), reescape(value)})
	}

	slices.SortFunc(pairs, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	var words []string
	for _, p := range pairs {
		words = append(words, p[0]+"="+p[1])
	}
	return strings.Join(words, "&")
}

func reescape(text string) string {
	plain, err := url.QueryUnescape(text)
	if err != nil {
		return text // no client signs that
	}
	return escape(plain, false)
}

// escape is AWS's UriEncode.
func escape(text string, path bool) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0, path && c == '/':
			b.WriteByte(c)
		default:
			b.WriteString("%" + strings.ToUpper(hex.EncodeToString([]byte{c})))
		}
	}
	return b.String()
}
