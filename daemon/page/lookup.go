package page

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Bounds of what lookups keep.
const (
	maxLookups = 1024            // answers of one lookup that says no number
	lookupTTL  = 2 * time.Minute // an open page asks again at least every minute
)

// lookup asks what is not in memory, for pages that need it, and keeps the answers for a while: however many people
// look, one question is asked at a time for each name, and nobody waits long.
type lookup[T any] struct {
	ask     func(ctx context.Context, name string) T
	changed func()           // there is another answer; nil: nobody wants to know
	now     func() time.Time // nil: time.Now
	// group is what answers questions about a name; nil: each name is a group.
	group func(name string) string

	most     int           // answers that are kept; 0: maxLookups
	parallel int           // questions at once, about different names; others wait their turn
	share    int           // of those, about names of one group, so that one that hangs does not hold all; 0: parallel
	timeout  time.Duration // of a question, with its turn
	fresh    time.Duration // for which an answer is not asked for again
	stale    time.Duration // for which an answer is used while the next one is awaited; at least fresh
	wait     time.Duration // for which someone waits who gets none otherwise

	mu      sync.Mutex
	answers map[string]*lookupEntry[T]
	turns   chan struct{} // a place for each question that is asked
	shares  map[string]*lookupShare
}

// lookupShare is what the questions of one group may have of all turns.
type lookupShare struct {
	turns chan struct{}
	users int // questions that wait for one or have one
}

type lookupEntry[T any] struct {
	value T
	at    time.Time // of value; zero: there is none
	used  time.Time
	done  chan struct{} // closed when the question that is under way is answered; nil: none is
}

// answer is what came of a question, and when.
type answer[T any] struct {
	Value T
	Time  time.Time
}

// get returns the answer about a name. It is false while none came, and if too much else is asked.
func (l *lookup[T]) get(ctx context.Context, name string) (answer[T], bool) {
	e, done := l.begin(ctx, name)
	if done != nil {
		timer := time.NewTimer(l.wait)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if e == nil {
		return answer[T]{}, false
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	return answer[T]{e.value, e.at}, !e.at.IsZero() && l.clock().Sub(e.at) <= l.stale
}

// begin asks if that is due. done is closed when there is an answer, nil if the present one will do.
func (l *lookup[T]) begin(ctx context.Context, name string) (e *lookupEntry[T], done <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	l.prune(now)
	if l.answers == nil {
		l.answers = map[string]*lookupEntry[T]{}
		l.turns = make(chan struct{}, l.parallel)
	}

	e = l.answers[name]
	if e == nil {
		if len(l.answers) >= cmp.Or(l.most, maxLookups) {
			return nil, nil
		}
		e = &lookupEntry[T]{}
		l.answers[name] = e
	}
	e.used = now
	age := now.Sub(e.at)
	if age <= l.fresh {
		return e, nil
	}

	if e.done == nil {
		e.done = make(chan struct{})
		go l.run(context.WithoutCancel(ctx), name, e)
	}
	if age <= l.stale {
		return e, nil
	}
	return e, e.done
}

// run asks once, when it is its turn, and keeps the answer. A question whose turn does not come has none.
func (l *lookup[T]) run(ctx context.Context, name string, e *lookupEntry[T]) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	var value T
	isAsked := false
	if leave := l.takeTurn(ctx, name); leave != nil {
		if isAsked = ctx.Err() == nil; isAsked {
			value = l.ask(ctx, name)
		}
		leave()
	}

	l.mu.Lock()
	if isAsked {
		e.value, e.at = value, l.clock()
	}
	close(e.done)
	e.done = nil
	l.mu.Unlock()
	if isAsked && l.changed != nil {
		l.changed()
	}
}

// takeTurn waits for a turn of a name's group and then of all, and returns what gives both back; nil if none comes while
// ctx lasts. Who waits for the group keeps nobody else waiting.
func (l *lookup[T]) takeTurn(ctx context.Context, name string) (leave func()) {
	group := name
	if l.group != nil {
		group = l.group(name)
	}

	l.mu.Lock()
	of := l.shares[group]
	if of == nil {
		if l.shares == nil {
			l.shares = map[string]*lookupShare{}
		}
		of = &lookupShare{turns: make(chan struct{}, cmp.Or(l.share, l.parallel))}
		l.shares[group] = of
	}
	of.users++
	l.mu.Unlock()
	forget := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(l.shares, group)
		}
	}

	select {
	case of.turns <- struct{}{}:
	case <-ctx.Done():
		forget()
		return nil
	}
	select {
	case l.turns <- struct{}{}:
		return func() { <-l.turns; <-of.turns; forget() }
	case <-ctx.Done():
		<-of.turns
		forget()
		return nil
	}
}

// known are the answers that are in memory.
func (l *lookup[T]) known() map[string]answer[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prune(l.clock())
	all := map[string]answer[T]{}
	for name, e := range l.answers {
		if !e.at.IsZero() {
			all[name] = answer[T]{e.value, e.at}
		}
	}
	return all
}

// expire has it asked again whoever wants to know next: something was done about a name.
func (l *lookup[T]) expire(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.answers, name) // whoever waits for a question that is under way has its answer all the same
}

// prune forgets what nobody looks at any more.
func (l *lookup[T]) prune(now time.Time) {
	for name, e := range l.answers {
		if e.done == nil && now.Sub(e.used) > lookupTTL {
			delete(l.answers, name)
		}
	}
}

func (l *lookup[T]) clock() time.Time {
	if l.now != nil {
		return l.now()
	}
	return time.Now()
}
