package supportbundle

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strconv"
	"strings"
)

// writtenForms are the ways in which programs write a text down: as it is, in base64, and escaped for JSON, HTML,
// addresses, shells, Python, YAML and C.
func writtenForms(s string) []string {
	encoded := base64.StdEncoding.EncodeToString([]byte(s))
	forms := []string{
		s,
		encoded,
		strings.TrimRight(encoded, "="),
		base64.URLEncoding.EncodeToString([]byte(s)),
		base64.RawURLEncoding.EncodeToString([]byte(s)),
		base64.StdEncoding.EncodeToString([]byte(s + "\n")),

		url.QueryEscape(s),
		url.PathEscape(s),
		escapeEvery(s, isReserved, "%%%02X"),
		escapeEvery(s, isReserved, "%%%02x"),

		html.EscapeString(s),
		strings.NewReplacer("&#34;", "&quot;", "&#39;", "&apos;").Replace(html.EscapeString(s)),
		strings.NewReplacer("&#34;", "&quot;", "&#39;", "&#x27;").Replace(html.EscapeString(s)), // Python's

		strings.ReplaceAll(s, `'`, `'\''`),
		strings.ReplaceAll(s, `'`, `'"'"'`),
		strings.ReplaceAll(s, `'`, `''`), // YAML, SQL
		escapeShell(s),

		stripQuotes(strconv.Quote(s)),
		stripQuotes(strconv.QuoteToASCII(s)),
		escapeEvery(s, isControlOrNotASCII, `\%03o`), // C, journalctl, shells
	}
	forms = append(forms, jsonForms(s)...)
	return append(forms, pythonForms(s)...)
}

func stripQuotes(s string) string { return s[1 : len(s)-1] }

// jsonForms are those with and without HTML's characters escaped, in Unicode and in ASCII alone.
func jsonForms(s string) (forms []string) {
	for _, asHTML := range []bool{true, false} {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(asHTML)
		if e.Encode(s) != nil {
			continue
		}

		j := stripQuotes(strings.TrimSpace(b.String()))
		forms = append(forms, j, toASCII(j, `\u%04x`), toASCII(j, `\u%04X`), strings.ReplaceAll(j, "/", `\/`))
		// JSON in JSON.
		forms = append(forms, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(j))
	}
	return forms
}

// pythonForms are what repr prints of a text and of its bytes, in either quotes.
func pythonForms(s string) (forms []string) {
	plain := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`, "\r", `\r`).Replace(s)
	for _, form := range []string{plain, strings.ReplaceAll(plain, `'`, `\'`), strings.ReplaceAll(plain, `"`, `\"`)} {
		forms = append(forms, form, toASCII(form, `\u%04x`), toLatin(form), escapeEvery(form, isNotASCII, `\x%02x`))
	}
	return forms
}

// toASCII writes what is not ASCII as UTF-16 units.
func toASCII(s, format string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, format+format, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			fmt.Fprintf(&b, format, r)
		}
	}
	return b.String()
}

// toLatin writes characters up to U+00FF by two digits, as ascii() and YAML do.
func toLatin(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r >= 0x80 && r <= 0xff {
			fmt.Fprintf(&b, `\x%02x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// escapeEvery writes each byte of a kind by a format.
func escapeEvery(s string, kind func(byte) bool, format string) string {
	var b strings.Builder
	for i := range len(s) {
		if kind(s[i]) {
			fmt.Fprintf(&b, format, s[i])
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isNotASCII(c byte) bool { return c >= 0x80 }

func isControlOrNotASCII(c byte) bool { return c >= 0x7f || c < ' ' }

// isReserved are bytes that an address writes by their numbers (RFC 3986, 2.3).
func isReserved(c byte) bool { return !isWord(c) && !strings.ContainsRune("-._~", rune(c)) }

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// escapeShell puts a backslash before what a shell acts on (printf %q).
func escapeShell(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if s[i] < 0x80 && !isWord(s[i]) && !strings.ContainsRune("_-./:=@%+,", rune(s[i])) {
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
