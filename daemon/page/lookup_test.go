package page

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// newLookup is one whose answers are the number of questions so far, each after a time.
func newLookup(takes time.Duration) (l *lookup[int], asked *atomic.Int32) {
	asked = new(atomic.Int32)
	l = &lookup[int]{
		ask: func(ctx context.Context, _ string) int {
			n := int(asked.Add(1))
			select {
			case <-ctx.Done():
				return -1
			case <-time.After(takes):
				return n
			}
		},
		parallel: 4,
		timeout:  10 * time.Second,
		fresh:    20 * time.Second,
		stale:    time.Minute,
		wait:     3 * time.Second,
	}
	return l, asked
}

func TestAnAnswerIsKeptForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, asked := newLookup(time.Second)
		began := time.Now()
		a, ok := l.get(t.Context(), "edge")
		assert.Equal(t, answer[int]{1, began.Add(time.Second)}, a)
		assert.True(t, ok, "it is waited for")

		time.Sleep(19 * time.Second)
		a, _ = l.get(t.Context(), "edge")
		assert.Equal(t, 1, a.Value)
		assert.EqualValues(t, 1, asked.Load(), "while it is fresh nothing is asked")

		time.Sleep(2 * time.Second)
		before := time.Now()
		a, _ = l.get(t.Context(), "edge")
		assert.Equal(t, 1, a.Value, "the old one is shown while the next one is awaited")
		assert.Equal(t, before, time.Now(), "nobody waits for that")
		synctest.Wait()
		time.Sleep(2 * time.Second)
		assert.Equal(t, 2, l.known()["edge"].Value)

		time.Sleep(90 * time.Second)
		a, ok = l.get(t.Context(), "edge")
		assert.Equal(t, 3, a.Value, "one that is too old is not shown")
		assert.True(t, ok)

		time.Sleep(lookupTTL + time.Second)
		assert.Empty(t, l.known(), "what nobody looks at is forgotten")
	})
}

func TestNobodyWaitsLongForAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, asked := newLookup(time.Hour)
		var changed atomic.Int32
		l.changed = func() { changed.Add(1) }
		for range 3 {
			began := time.Now()
			_, ok := l.get(t.Context(), "edge")
			assert.False(t, ok)
			assert.Equal(t, 3*time.Second, time.Since(began))
		}
		assert.EqualValues(t, 1, asked.Load(), "one question at a time")

		time.Sleep(2 * time.Second)
		a, ok := l.get(t.Context(), "edge")
		assert.Equal(t, -1, a.Value, "a question ends")
		assert.True(t, ok)
		synctest.Wait()
		assert.EqualValues(t, 1, changed.Load())

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		_, ok = l.get(gone, "lab")
		assert.False(t, ok)
		assert.Equal(t, began, time.Now(), "who has gone waits no longer")
		time.Sleep(time.Minute) // the question of who has gone ends, too
	})
}

func TestLookupsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, asked := newLookup(3 * time.Second)
		l.wait = 0
		for i := range maxLookups + 5 {
			_, ok := l.get(t.Context(), fmt.Sprint(i))
			assert.False(t, ok)
		}
		assert.Len(t, l.answers, maxLookups)
		synctest.Wait()
		assert.EqualValues(t, 4, asked.Load(), "at once")

		time.Sleep(3*time.Second + time.Millisecond)
		synctest.Wait()
		assert.EqualValues(t, 8, asked.Load(), "others wait their turn")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		assert.Len(t, l.known(), int(asked.Load()), "whose turn does not come in time has no answer")
		assert.Less(t, int(asked.Load()), maxLookups)
	})
}

// TestAGroupThatHangsHoldsItsShareAlone: three pages of pods of a cluster that does not answer keep no other cluster's
// page waiting.
func TestAGroupThatHangsHoldsItsShareAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, asked := newLookup(0)
		l.group, l.share = clusterOfKey, 2
		answers := l.ask
		var hung atomic.Int32
		l.ask = func(ctx context.Context, name string) int {
			if clusterOfKey(name) == "hung" {
				hung.Add(1)
				<-ctx.Done()
				return -1
			}
			return answers(ctx, name)
		}
		for i := range 30 {
			go l.get(t.Context(), fmt.Sprintf("hung\nns\npod-%d", i))
		}
		synctest.Wait()
		assert.EqualValues(t, 2, hung.Load(), "its share")
		for i := range 10 {
			began := time.Now()
			_, ok := l.get(t.Context(), fmt.Sprintf("edge\nns\npod-%d", i))
			assert.True(t, ok)
			assert.Equal(t, began, time.Now(), "nobody waits")
		}
		assert.EqualValues(t, 10, asked.Load())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Empty(t, l.shares, "what nobody asks is forgotten")
	})
}

// TestManyWhoAskAtOnceGetTheirAnswers: all open pages are fetched again in the same moment.
func TestManyWhoAskAtOnceGetTheirAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLookup(100 * time.Millisecond)
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				_, ok := l.get(t.Context(), fmt.Sprint(i))
				assert.True(t, ok, i)
			})
		}
		all.Wait()
	})
}
