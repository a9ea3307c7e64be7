package access

import (
	"sync"
	"time"
)

// maxAnswers bounds what is remembered; the API server is asked for the rest.
const maxAnswers = 1024

// answerCache remembers answers for a while.
type answerCache[K comparable, V any] struct {
	ttl time.Duration
	now func() time.Time

	mu      sync.Mutex
	answers map[K]cachedAnswer[V]
}

type cachedAnswer[V any] struct {
	value V
	end   time.Time
}

func newMemory[K comparable, V any](life time.Duration) *answerCache[K, V] {
	return &answerCache[K, V]{ttl: life, now: time.Now, answers: map[K]cachedAnswer[V]{}}
}

func (m *answerCache[K, V]) get(k K) (V, bool) {
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

func (m *answerCache[K, V]) put(k K, v V) {
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

	m.answers[k] = cachedAnswer[V]{v, m.now().Add(m.ttl)}
}
