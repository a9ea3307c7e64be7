// Package bringup makes facts true, one after the other, and keeps them so. It knows
// what a stage is and nothing of what any stage does: not of networks, not of Kubernetes.
//
// A stage asks the world whether its fact holds and only acts when it does not. There is
// no first-boot flag and no list of what was done: the plan runs from its beginning at
// every boot, and a power cut is the ordinary path.
package bringup

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Stage is a fact and the way to make it true.
type Stage struct {
	Name  string // a fact: links-up
	Title string // what happens, for people who do not know the name; "" where nobody is shown the stage
	Fact  string // the name as a sentence
	Why   string // why it is a stage, and why it stands where it does

	// Done asks the world, at every boot and again while serving. Nil says that the fact
	// holds. Any other answer says what is missing, in words fit for the console: Wait for
	// what will come by itself, Permanent for what only a person can mend, any other error
	// for what Do may mend. It must return soon and change nothing.
	Done func(ctx context.Context) error

	// Do makes the fact true, or starts what will; Done is asked again afterwards. It may
	// be cut off anywhere and is then called again. It tells report what it is doing.
	// Nil when the stage only waits.
	Do func(ctx context.Context, report Report) error

	// AfterReady says that the whole is ready without this stage, whatever becomes of it. Such stages stand last, so
	// that they begin when all others hold.
	AfterReady bool

	// Recheck is how long an answer of Done is believed once it was nil; zero: 10 s.
	Recheck time.Duration
}

// Report shows what a stage is doing: "importing image 3 of 7".
type Report func(doing string)

// Wait is the error of a fact that will become true by itself.
func Wait(format string, args ...any) error { return &waitError{fmt.Sprintf(format, args...)} }

type waitError struct{ what string }

func (e *waitError) Error() string { return e.what }

// IsWait tells whether err was made by Wait.
func IsWait(err error) bool { var w *waitError; return errors.As(err, &w) }

// Begin acts for a stage whose turn has not come yet, if its fact needs more than time: what it starts comes up
// meanwhile. At its turn the stage is asked as ever.
func Begin(ctx context.Context, s Stage, report Report) error {
	err := s.Done(ctx)
	if err == nil || IsWait(err) || IsPermanent(err) || s.Do == nil {
		return nil
	}
	return s.Do(ctx, report)
}

// Permanent marks an error that retrying cannot mend: the plan stops there until it is
// told to look again (Runner.Recheck) or the next boot.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// IsPermanent tells whether err was marked by Permanent.
func IsPermanent(err error) bool { var p *permanentError; return errors.As(err, &p) }
