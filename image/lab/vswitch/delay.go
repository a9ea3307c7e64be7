package vswitch

import (
	"container/heap"
	"sync"
	"time"
)

// delayLine calls functions when they are due, in the order in which they are.
type delayLine struct {
	mu    sync.Mutex
	waits waits
	count uint64
	kick  chan struct{}
	done  chan struct{}
	once  sync.Once
}

type wait struct {
	due   time.Time
	order uint64 // among those due at once
	do    func()
}

type waits []wait

func (w waits) Len() int { return len(w) }
func (w waits) Less(i, j int) bool {
	if w[i].due.Equal(w[j].due) {
		return w[i].order < w[j].order
	}
	return w[i].due.Before(w[j].due)
}
func (w waits) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *waits) Push(x any)   { *w = append(*w, x.(wait)) }
func (w *waits) Pop() any {
	old := *w
	last := old[len(old)-1]
	*w = old[:len(old)-1]
	return last
}

func (l *delayLine) init() {
	l.kick, l.done = make(chan struct{}, 1), make(chan struct{})
	go l.run()
}

func (l *delayLine) close() { l.once.Do(func() { close(l.done) }) }

func (l *delayLine) add(due time.Time, do func()) {
	l.mu.Lock()
	l.count++
	heap.Push(&l.waits, wait{due, l.count, do})
	l.mu.Unlock()
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func (l *delayLine) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := time.Hour
		for {
			l.mu.Lock()
			var do func()
			if len(l.waits) > 0 {
				if next = time.Until(l.waits[0].due); next <= 0 {
					do = heap.Pop(&l.waits).(wait).do
				}
			}

			l.mu.Unlock()
			if do == nil {
				break
			}

			do()
			next = time.Hour
		}

		timer.Reset(next)
		select {
		case <-l.done:
			return
		case <-l.kick:
		case <-timer.C:
		}
	}
}
