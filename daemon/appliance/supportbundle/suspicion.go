package supportbundle

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// secretWords end the name of a value that is secret: adminPassword, AWS_SECRET_ACCESS_KEY, client_secret. What goes on
// after them (tokenRequests, secretName, passwordFile) is another thing.
const secretWords = `pass(?:word|wd|phrase|code)|passwd|pwd|psk|(?:ssh|sudo|become|bmc|db|user|admin|root)[_-]?pass|` +
	`(?:client|shared|api|app|auth|session|webhook|bind|chap|smtp)[_-]?secret|secret[_-]?(?:access[_-]?)?key|secret|` +
	`(?:api|access|private|account|client|certificate|encryption|signing|license|master|host|storage)[_-]?key|client-key-data|` +
	`token|authorization|credential`

var (
	// A name, and what stands between it and its value.
	announced = regexp.MustCompile(`(?i)(?:[a-z0-9]+[_.-])*[a-z0-9]*?(?:` + secretWords + `)(?:\\*["'])?[ \t]*(?:[:=]|=>|:=)[ \t]*`)
	// A name that is a word of a tuple, and an option whose value is the next word.
	tuple  = regexp.MustCompile(`(?i)(["'](?:[a-z0-9]+[_.-])*[a-z0-9]*?(?:` + secretWords + `)["'][ \t]*,[ \t]*[bu]?)("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')`)
	option = regexp.MustCompile(`(?i)(\s--?(?:[a-z0-9]+[_-])*(?:` + secretWords + `)[ \t]+)("[^"\n]*"|'[^'\n]*'|[^\s"'-][^\s"']*)`)
	// Programs whose options do not say it.
	ipmi    = regexp.MustCompile(`(\bipmitool\b[^\n|;]*?\s-P[ \t]*)("[^"\n]*"|'[^'\n]*'|[^\s"']+)`)
	sshpass = regexp.MustCompile(`(\bsshpass\s+-p[ \t]*)("[^"\n]*"|'[^'\n]*'|[^\s"']+)`)
	user    = regexp.MustCompile(`(\s(?:-u|--user|--proxy-user|-U)[ =]?["']?[^\s:"'/]+:)([^\s"']+)`)
	// user:password, for chpasswd.
	piped   = regexp.MustCompile(`(\b[a-z_][a-z0-9_-]*:)([^\s|'"]+)(["']?[ \t]*\|[ \t]*(?:sudo[ \t]+)?chpasswd\b)`)
	listed  = regexp.MustCompile(`(?m)\bchpasswd\b[^\n]*\n(?:[ \t]*(?:list|users|expire)[ \t]*:[^\n]*\n)*(?:[ \t]*-?[ \t]*[a-z_][a-z0-9_-]*:[^\s:]+[ \t]*(?:\n|\z))+`)
	account = regexp.MustCompile(`(?m)^([ \t]*-?[ \t]*[a-z_][a-z0-9_-]*:)([^\s:]+)[ \t]*$`)
	element = regexp.MustCompile(`(?i)(<(?:[a-z0-9]+[:_.-])*[a-z0-9]*?(?:` + secretWords + `)(?:\s[^<>]*)?>)([^<]+)(</)`)
	// "auth" of a Docker configuration: user:password in base64.
	docker = regexp.MustCompile(`("auth"[ \t]*:[ \t]*")[A-Za-z0-9+/=_-]{8,}(")`)

	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`)
	// The end of one whose beginning is not there.
	keyTail  = regexp.MustCompile(`(?:[ \t]*[A-Za-z0-9+/=]{1,128}[ \t]*\r?\n)+[ \t]*-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----`)
	webToken = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`)
	hash     = regexp.MustCompile(`\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|md5|sha1|argon2(?:id|i|d)|scrypt|pbkdf2(?:-sha\d+)?)\$[./A-Za-z0-9$=,+-]{16,}`)
	basic    = regexp.MustCompile(`(?i)\b(basic|bearer|digest) [A-Za-z0-9+/=._~-]{8,}`)
	// A password of any characters in an address: to the last @ before the path.
	inAddress = regexp.MustCompile(`\b([a-z][a-z0-9+.-]*://[^\s/:@"']*):[^\s/"']+@`)
	// Of kubeadm, AWS, GitHub, GitLab and Slack.
	knownToken = regexp.MustCompile(`\b(?:[a-z0-9]{6}\.[a-z0-9]{16}|AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,}|glpat-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,})\b`)
	bootToken  = regexp.MustCompile(`(/b/)[A-Za-z0-9_-]{43}\b`) // of an agent, in the addresses that it was told
	// A private key in base64, as Kubernetes writes Secrets: "-----BEGIN" at its three alignments.
	encodedKey = regexp.MustCompile(`(?:LS0tLS1CRUdJTi|0tLS0tQkVHSU4|tLS0tLUJFR0lO)[A-Za-z0-9+/=\r\n]{60,}`)
)

// hideSuspects takes out of a text what looks like a secret. A bundle is many megabytes in which little does, so each
// pattern is tried only where there is a word of it.
func hideSuspects(out []byte) []byte {
	mark := []byte(hidden)
	if bytes.Contains(out, []byte("PRIVATE KEY")) {
		out = privateKey.ReplaceAll(out, mark)
		out = keyTail.ReplaceAll(out, mark)
	}

	if bytes.Contains(out, []byte("chpasswd")) {
		out = piped.ReplaceAll(out, []byte("${1}"+hidden+"${3}"))
		out = listed.ReplaceAllFunc(out, func(m []byte) []byte {
			return account.ReplaceAllFunc(m, func(line []byte) []byte {
				return slices.Concat(account.FindSubmatch(line)[1], mark)
			})
		})
	}

	if bytes.Contains(out, []byte("LS0t")) || bytes.Contains(out, []byte("0tLS")) || bytes.Contains(out, []byte("tLS0")) {
		out = hideEncodedKeys(out)
	}

	clean := make([]byte, 0, len(out))
	for line := range bytes.Lines(out) {
		clean = append(clean, hideInLine(line)...)
	}

	return clean
}

// hideInLine does so in one line.
func hideInLine(line []byte) []byte {
	lower := bytes.ToLower(line)
	if containsAny(lower, "basic ", "bearer ", "digest ") {
		line = hideBasic(line)
	}

	if containsAny(lower, "pass", "pwd", "psk", "secret", "key", "token", "auth", "credential") {
		line = hideAnnounced(line)
		line = hideSecond(tuple, hideSecond(option, line))
		line = element.ReplaceAll(line, []byte("${1}"+hidden+"${3}"))
		line = docker.ReplaceAll(line, []byte("${1}"+hidden+"${2}"))
		line = hideSecond(sshpass, line)
	}

	if containsAny(lower, "ipmitool") {
		line = hideSecond(ipmi, line)
	}
	if containsAny(lower, " -u", "-user") {
		line = hideSecond(user, line)
	}
	if containsAny(lower, "://") && containsAny(lower, "@") {
		line = inAddress.ReplaceAll(line, []byte("$1:"+hidden+"@"))
	}
	if containsAny(lower, "/b/") {
		line = bootToken.ReplaceAll(line, []byte("${1}"+hidden))
	}
	if containsAny(lower, "$") {
		line = hash.ReplaceAll(line, []byte(hidden))
	}
	if containsAny(lower, "eyj") {
		line = webToken.ReplaceAll(line, []byte(hidden))
	}
	if containsAny(lower, ".", "akia", "gh", "glpat-", "xox") {
		line = knownToken.ReplaceAll(line, []byte(hidden))
	}

	return line
}

func containsAny(text []byte, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return bytes.Contains(text, []byte(w)) })
}

// hideSecond hides the second part of what a pattern finds, which may be in quotes.
func hideSecond(pattern *regexp.Regexp, text []byte) []byte {
	return pattern.ReplaceAllFunc(text, func(m []byte) []byte {
		p := pattern.FindSubmatch(m)
		if isHarmless(strings.Trim(string(p[2]), `"'`)) {
			return m
		}
		return slices.Concat(p[1], inQuotes(p[2]))
	})
}

// inQuotes is the mark in the quotes that a value had.
func inQuotes(value []byte) []byte {
	if len(value) > 1 && (value[0] == '"' || value[0] == '\'') {
		return slices.Concat(value[:1], []byte(hidden), value[:1])
	}
	return []byte(hidden)
}

// announcedValues are the values that names in a text announce.
func announcedValues(text string) (values []string) {
	for _, at := range findAnnounced([]byte(text)) {
		values = append(values, text[at[0]:at[1]])
	}
	return values
}

func hideAnnounced(text []byte) []byte {
	var out []byte
	done := 0
	for _, at := range findAnnounced(text) {
		out = append(append(out, text[done:at[0]]...), hidden...)
		done = at[1]
	}
	return append(out, text[done:]...)
}

// findAnnounced says where the values are that names announce, without their quotes.
func findAnnounced(text []byte) (all [][2]int) {
	for from := 0; ; {
		m := announced.FindIndex(text[from:])
		if m == nil {
			return all
		}

		begin := from + m[1]
		sign := bytes.TrimRight(text[from+m[0]:begin], " \t")
		start, end := valueAt(text, begin, sign[len(sign)-1] == ':')
		from = max(begin, end)
		value := string(text[start:end])
		name := strings.ToLower(string(sign))
		switch {
		case isHarmless(value), strings.Contains(name, "key") && isPath(value):
		default:
			all = append(all, [2]int{start, end})
		}
	}
}

var (
	scheme = regexp.MustCompile(`(?i)^(?:basic|bearer|digest)[ \t]+`)
	// Where the next field begins, of a line with several.
	nextField = regexp.MustCompile(`[,;][ \t]*["']?[A-Za-z_][A-Za-z0-9_.-]*["']?[ \t]*[:=]|[ \t]+[A-Za-z_][A-Za-z0-9_.-]*=|["'}\])]+[ \t]*$`)
)

// valueAt is where the value lies that begins at a place: within its quotes, to the end of the line after a colon, to the
// next blank after an equals sign. A map or a list is none: it has names of its own.
func valueAt(text []byte, begin int, colon bool) (start, end int) {
	line := text[begin:]
	if at := bytes.IndexByte(line, '\n'); at >= 0 {
		line = line[:at]
	}

	prefix := 0
	if len(line) > 1 && (line[0] == 'b' || line[0] == 'u') && (line[1] == '"' || line[1] == '\'') {
		prefix = 1
	}

	rest := line[prefix:]
	slashes := len(rest) - len(bytes.TrimLeft(rest, `\`))
	if q := rest[slashes:]; len(q) > 0 && (q[0] == '"' || q[0] == '\'') {
		start = begin + prefix + slashes + 1
		return start, start + quotedLength(q[1:], q[0], slashes)
	}

	if s := scheme.Find(line); s != nil {
		begin, line = begin+len(s), line[len(s):]
	}
	if len(line) > 0 && strings.IndexByte("{[&*|>", line[0]) >= 0 {
		return begin, begin
	}

	if !colon {
		if at := bytes.IndexAny(line, " \t&"); at >= 0 {
			line = line[:at]
		}
		return begin, begin + len(bytes.TrimRight(line, `"'),;}]\`))
	}
	if m := nextField.FindIndex(line); m != nil {
		line = line[:m[0]]
	}

	return begin, begin + len(bytes.TrimRight(line, " \t\r"))
}

// quotedLength is how long a text is up to its closing quote, which has as many backslashes before it as the opening
// one; to the end of the line if there is none.
func quotedLength(s []byte, quote byte, slashes int) int {
	for i := 0; i < len(s); i++ {
		if s[i] != quote {
			continue
		}

		before := i - len(bytes.TrimRight(s[:i], `\`))
		switch {
		case slashes > 0 && before == slashes:
			return i - slashes
		case slashes == 0 && before%2 == 0:
			return i
		}
	}
	return len(s)
}

// isPath reports whether a value names a file: what options and configurations say of keys.
func isPath(value string) bool { return pathForm.MatchString(value) }

var pathForm = regexp.MustCompile(`^/(?:[a-z0-9._-]+/)+[A-Za-z0-9._-]+$`)

// isHarmless are values that follow "token:" and are none.
func isHarmless(s string) bool {
	switch strings.ToLower(strings.Trim(s, "* ")) {
	case "", "true", "false", "null", "none", "nil", "yes", "no", "~", "redacted", "[redacted", hidden, "<nil>", "<none>":
		return true
	}
	return false
}

func hideBasic(out []byte) []byte {
	return basic.ReplaceAllFunc(out, func(m []byte) []byte {
		if !bytes.ContainsAny(m, "0123456789=") {
			return m // words
		}
		word, _, _ := bytes.Cut(m, []byte(" "))
		return slices.Concat(word, []byte(" "+hidden))
	})
}

func hideEncodedKeys(out []byte) []byte {
	return encodedKey.ReplaceAllFunc(out, func(m []byte) []byte {
		clean := strings.Map(func(c rune) rune {
			if c == '\r' || c == '\n' {
				return -1
			}
			return c
		}, string(m))
		// Certificates are written alike and are no secret.
		for shift := range 3 {
			from := min(shift, len(clean))
			text, _ := base64.RawStdEncoding.DecodeString(clean[from : len(clean)-(len(clean)-from)%4])
			if bytes.Contains(text, []byte("PRIVATE KEY")) {
				return []byte(hidden)
			}
		}
		return m
	})
}
