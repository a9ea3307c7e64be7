package access

import (
	"sync"
	"time"
)

// maxAnswers bounds what is remembered; the API server is asked for the rest.
const maxAnswers = 1024

// memory remembers answers for a while.
type memory[K comparable, V any] struct {
	life time.Duration
	now  func() time.Time

	mu      sync.Mutex
	answers map[K]answer[V]
}

type answer[V any] struct {
	value V
	end   time.Time
}

func newMemory[K comparable, V any](life time.Duration) *memory[K, V] {
	return &memory[K, V]{life: life, now: time.Now, answers: map[K]answer[V]{}}
}

func (m *memory[K, V]) get(k K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, known := m.answers[k]
	if !known || !m.now().Before(a.end) {
		delete(m.answers, k)
		var none V
		return none, false
	}
	return a.value, true
}

func (m *memory[K, V]) put(k K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.answers) >= maxAnswers {
		now := m.now()
		for k, a := range m.answers {
			if !now.Before(a.end) {
				delete(m.answers, k)
			}
		}
		if len(m.answers) >= maxAnswers {
			clear(m.answers)
		}
	}
	m.answers[k] = answer[V]{v, m.now().Add(m.life)}
}
