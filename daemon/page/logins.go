package page

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// codeTTL is how long a code is good for; Role.lifetime says it of sessions. Times are measured by the monotonic clock:
// the wall clock of an appliance may be set by years.
const codeTTL = 10 * time.Minute

// How many there are at once; one more takes the place of the oldest.
const (
	maxCodes         = 16
	maxSessions      = 64
	maxOwnSessions   = 16 // of one person of an issuer, who logs in without anybody's code
	maxConfirmations = 16 // of one session
)

// code opens a session of a person.
type code struct {
	person Person
	minted time.Time
}

// session is one browser that is logged in.
type session struct {
	person  Person
	csrf    string // is in each form of its pages
	began   time.Time
	used    time.Time
	streams int           // that are open
	uploads atomic.Int32  // requests that are passed on
	ended   chan struct{} // closed at its end

	isIssued bool       // by an issuer's word, not by a code
	renewing sync.Mutex // held while the issuer is asked again
	isOver   bool       // the issuer was asked and did not renew its word; renewing is held
	issued   issued     // that word

	confirmations []confirmation // that were asked for and not given yet, the newest last
	notice        notice         // that was not shown yet
}

// confirmation is what a person was asked to confirm. Its token is good for one answer.
type confirmation struct {
	token  string
	action string
	name   string
	asked  string // the question's text
	chosen []string
}

// notice says on the next page what became of an action.
type notice struct {
	Text  string
	Level level
}

type digest [sha256.Size]byte

// logins are the codes that were not used yet, and the sessions. Neither is kept itself: a digest is enough to know it
// again.
type logins struct {
	now func() time.Time

	mu       sync.Mutex
	codes    map[digest]code
	sessions map[digest]*session
}

func newLogins(now func() time.Time) *logins {
	return &logins{now: now, codes: map[digest]code{}, sessions: map[digest]*session{}}
}

var codeEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// mint returns a code of 80 random bits for a person, and when it ends: k3vd-7pqa-m2xe-wz4u.
func (l *logins) mint(by Person) (text string, expires time.Time) {
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails, crypto/rand
	text = strings.ToLower(codeEncoding.EncodeToString(random[:]))
	text = strings.Join([]string{text[:4], text[4:8], text[8:12], text[12:]}, "-")

	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	if len(l.codes) >= maxCodes {
		delete(l.codes, oldest(l.codes, func(c code) time.Time { return c.minted }))
	}

	now := l.now()
	l.codes[hashCode(text)] = code{by, now}
	return text, now.Add(codeTTL)
}

// hashCode is the digest of a code however a person types it.
func hashCode(text string) digest {
	text = strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' || r == '\t' {
			return -1
		}
		return r
	}, strings.ToLower(text))
	return sha256.Sum256([]byte(text))
}

// open uses a code up, and returns the secret of a new session; false if the code is none, was used or has ended.
func (l *logins) open(text string) (secret string, by Person, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	key := hashCode(text)
	used, ok := l.codes[key]
	if !ok {
		return "", Person{}, false
	}

	delete(l.codes, key)
	return l.start(used.person, issued{}), used.person, true
}

// openIssued returns the secret of a new session of a person whom an issuer knows.
func (l *logins) openIssued(g *grant) (secret string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	own := map[digest]*session{}
	for key, s := range l.sessions {
		if s.isIssued && s.person.Name == g.person.Name {
			own[key] = s
		}
	}
	if len(own) >= maxOwnSessions {
		l.end(oldest(own, func(s *session) time.Time { return s.used }))
	}
	return l.start(g.person, newIssued(g, l.now()))
}

// wordOf is the issuer's word of a session, and for how long it is good.
func (l *logins) wordOf(s *session) (word *grant, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.issued.grant, s.issued.until.Sub(l.now())
}

// setWord is the issuer's new word of a session.
func (l *logins) setWord(s *session, g *grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.issued = newIssued(g, l.now())
}

// start returns the secret of a new session. l.mu is held.
func (l *logins) start(by Person, word issued) (secret string) {
	if len(l.sessions) >= maxSessions {
		l.end(oldest(l.sessions, func(s *session) time.Time { return s.used }))
	}

	secret = newSecret()
	now := l.now()
	l.sessions[sha256.Sum256([]byte(secret))] = &session{
		person: by,
		csrf:   newSecret(),
		began:  now,
		used:   now,
		ended:  make(chan struct{}),

		isIssued: word.grant != nil,
		issued:   word,
	}
	return secret
}

// find returns the session of a secret, nil if it is none or has ended, and counts that as use. What a page's script
// asks for is use of a viewer's session alone: a screen on the wall is looked at, and one that can act is left open.
func (l *logins) find(secret string, byScript bool) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	s := l.sessions[sha256.Sum256([]byte(secret))]
	if s != nil && (!byScript || s.person.Role == Viewer) {
		s.used = l.now()
	}

	return s
}

// ask keeps what a session is asked to confirm, and returns the token of the answer.
func (l *logins) ask(s *session, c confirmation) (token string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.token = newSecret()
	s.confirmations = append(s.confirmations, c)
	s.confirmations = s.confirmations[max(0, len(s.confirmations)-maxConfirmations):]
	return c.token
}

// answer uses a token up, and returns what was to be confirmed; false if the token is none or was used.
func (l *logins) answer(s *session, token string) (c confirmation, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(s.confirmations, func(c confirmation) bool { return isSame(c.token, token) })
	if i < 0 {
		return confirmation{}, false
	}

	c = s.confirmations[i]
	s.confirmations = slices.Delete(s.confirmations, i, i+1)
	return c, true
}

// leaveNotice has a notice shown on the next page of a session.
func (l *logins) leaveNotice(s *session, n notice) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.notice = n
}

// takeNotice is the notice that was left, once.
func (l *logins) takeNotice(s *session) notice {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := s.notice
	s.notice = notice{}
	return n
}

// close ends the session of a secret.
func (l *logins) close(secret string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(sha256.Sum256([]byte(secret)))
}

// startStream counts one more stream of a session, unless it has its share.
func (l *logins) startStream(s *session, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.streams >= most {
		return false
	}

	s.streams++
	return true
}

func (l *logins) endStream(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.streams--
}

// prune removes what has ended. l.mu is held.
func (l *logins) prune() {
	now := l.now()
	for key, c := range l.codes {
		if now.Sub(c.minted) >= codeTTL {
			delete(l.codes, key)
		}
	}

	for key, s := range l.sessions {
		good := s.person.Role.lifetime()
		if now.Sub(s.began) >= good.total || now.Sub(s.used) >= good.idle || s.issued.hasEnded(now) {
			l.end(key)
		}
	}
}

// end removes a session and its streams. l.mu is held.
func (l *logins) end(key digest) {
	if s := l.sessions[key]; s != nil {
		close(s.ended)
		delete(l.sessions, key)
	}
}

// sweep ends what has ended while nobody asked.
func (l *logins) sweep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
}

// newSecret is 256 random bits.
func newSecret() string {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails, crypto/rand
	return base64.RawURLEncoding.EncodeToString(random[:])
}

// isSame compares secrets in a time that says nothing about them.
func isSame(a, b string) bool {
	return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}

// oldest is the key of the value with the earliest time.
func oldest[V any](all map[digest]V, at func(V) time.Time) (key digest) {
	var first time.Time
	for k, v := range all {
		if t := at(v); first.IsZero() || t.Before(first) {
			key, first = k, t
		}
	}
	return key
}
