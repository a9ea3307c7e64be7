package page

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"strings"
	"sync"
	"time"
)

// How long what opens the page is good for. Times are measured by the monotonic clock: the wall clock of an appliance
// may be set by years.
const (
	codeTTL     = 10 * time.Minute
	sessionTTL  = 12 * time.Hour
	sessionIdle = time.Hour // without a request
)

// How many there are at once; one more takes the place of the oldest.
const (
	maxCodes    = 16
	maxSessions = 64
)

// role is what a session may do.
type role string

const (
	nobody role = ""       // without a session
	viewer role = "viewer" // reads all pages, changes nothing
)

// session is one browser that is logged in.
type session struct {
	role    role
	csrf    string // is in each form of its pages
	began   time.Time
	used    time.Time
	streams int           // that are open
	ended   chan struct{} // closed at its end
}

type digest [sha256.Size]byte

// logins are the codes that were not used yet, and the sessions. Neither is kept itself: a digest is enough to know it
// again.
type logins struct {
	now func() time.Time

	mu       sync.Mutex
	codes    map[digest]time.Time // when minted
	sessions map[digest]*session
}

func newLogins(now func() time.Time) *logins {
	return &logins{now: now, codes: map[digest]time.Time{}, sessions: map[digest]*session{}}
}

var codeEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// mint returns a code of 80 random bits, and when it ends: k3vd-7pqa-m2xe-wz4u.
func (l *logins) mint() (code string, expires time.Time) {
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails, crypto/rand
	text := strings.ToLower(codeEncoding.EncodeToString(random[:]))
	code = strings.Join([]string{text[:4], text[4:8], text[8:12], text[12:]}, "-")

	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	if len(l.codes) >= maxCodes {
		delete(l.codes, oldest(l.codes, func(minted time.Time) time.Time { return minted }))
	}

	now := l.now()
	l.codes[hashCode(code)] = now
	return code, now.Add(codeTTL)
}

// hashCode is the digest of a code however a person types it.
func hashCode(code string) digest {
	code = strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' || r == '\t' {
			return -1
		}
		return r
	}, strings.ToLower(code))
	return sha256.Sum256([]byte(code))
}

// open uses a code up, and returns the secret of a new session; false if the code is none, was used or has ended.
func (l *logins) open(code string) (secret string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	key := hashCode(code)
	if _, ok := l.codes[key]; !ok {
		return "", false
	}

	delete(l.codes, key)
	if len(l.sessions) >= maxSessions {
		l.end(oldest(l.sessions, func(s *session) time.Time { return s.used }))
	}

	secret = newSecret()
	now := l.now()
	l.sessions[sha256.Sum256([]byte(secret))] = &session{
		role:  viewer,
		csrf:  newSecret(),
		began: now,
		used:  now,
		ended: make(chan struct{}),
	}
	return secret, true
}

// find returns the session of a secret, nil if it is none or has ended, and counts that as use.
func (l *logins) find(secret string) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune()
	s := l.sessions[sha256.Sum256([]byte(secret))]
	if s != nil {
		s.used = l.now()
	}

	return s
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
	for key, minted := range l.codes {
		if now.Sub(minted) >= codeTTL {
			delete(l.codes, key)
		}
	}

	for key, s := range l.sessions {
		if now.Sub(s.began) >= sessionTTL || now.Sub(s.used) >= sessionIdle {
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
