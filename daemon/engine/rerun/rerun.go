// Package rerun keeps what serves a part of the site running as the site is edited.
package rerun

import (
	"context"
	"reflect"
	"time"
)

// interval is how often is looked whether something changed.
const interval = time.Second

// OnChange serves, from the moment that ready says so, what wanted returns; false: nothing is to be served. When that
// becomes another value serve's context ends, and when serve has returned it is called with the new one. OnChange
// returns when ctx ends, and with the first error of serve.
func OnChange[T any](
	ctx context.Context, ready func() bool, wanted func() (T, bool), serve func(context.Context, T) error,
) error {
	for {
		var value T
		isWanted := func() (ok bool) { value, ok = wanted(); return ok }
		if !Await(ctx, func() bool { return ready() && isWanted() }) {
			return nil
		}

		serving, stop := context.WithCancel(ctx)
		go func() {
			defer stop()
			Await(serving, func() bool {
				now, ok := wanted()
				return !ok || !reflect.DeepEqual(value, now)
			})
		}()

		err := serve(serving, value)
		stop()
		if err != nil {
			return err
		}
	}
}

// Await looks every second, and returns true when something holds, false when ctx has ended.
func Await(ctx context.Context, holds func() bool) bool {
	for ctx.Err() == nil {
		if holds() {
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(interval):
		}
	}
	return false
}
