package stickupdate

import (
	"context"
	"errors"
	"sync"
)

// Background runs one update at a time while people ask how far it is. Its zero value with an Updater is usable. What it
// knows ends with the program; Updater.Status says what became of an update.
type Background struct {
	Updater *Updater

	mu    sync.Mutex
	state BackgroundState
}

// BackgroundState is how far the update is that was begun last.
type BackgroundState struct {
	IsRunning   bool
	Phase       string // as Progress says it
	Done, Total int64  // bytes of it
	Error       string // why it failed, for people
}

// Begin updates to an image, without waiting for the end. The error is for people.
func (b *Background) Begin(path string, o Options) error {
	if _, err := b.Updater.Preview(path, o); err != nil {
		return err
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state.IsRunning {
		return errors.New("another update is being written; wait until it is complete")
	}
	b.state = BackgroundState{IsRunning: true}
	go b.run(path, o)
	return nil
}

// run ends with the update. A power failure, or the end of the daemon, cuts it as `firstlightd update` is cut.
func (b *Background) run(path string, o Options) {
	_, err := b.Updater.Update(context.Background(), path, o, func(phase string, done, total int64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.state.Phase, b.state.Done, b.state.Total = phase, done, total
	})

	b.mu.Lock()
	defer b.mu.Unlock()
	b.state = BackgroundState{}
	if err != nil {
		b.Updater.Log.Error("update failed", "image", path, "error", err)
		b.state.Error = err.Error()
	}
}

// State is how far it is.
func (b *Background) State() BackgroundState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}
