package remote

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Installed is a node in service, as something is changed on it by a Shell.
type Installed struct {
	Name      string
	Addresses []netip.Addr // the first that answers is taken
	HostKey   string       // as in authorized_keys; "": it cannot be logged in to
	Busy      string       // why it is not logged in to now, and waited for; "": it is
}

// Change runs a script on the node as root; it must print done.
func (n Installed) Change(ctx context.Context, shell Shell, script string) error {
	if n.Busy != "" {
		return errors.New(n.Busy)
	}

	failed := errors.New("no address of it is known")
	for _, addr := range n.Addresses {
		out, said, err := shell.Run(ctx, addr, n.HostKey, script)
		switch {
		case err != nil:
			failed = err
		case strings.TrimSpace(out) != "done":
			return fmt.Errorf("its shell says: %s", said)
		default:
			return nil
		}
	}
	return failed
}

// changeLimit is how long one node may take.
const changeLimit = time.Minute

// ChangeAll does something on all nodes at once and returns those where it was not done, each with the reason.
func ChangeAll(ctx context.Context, nodes []Installed, do func(context.Context, Installed) error) (waiting []string) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, changeLimit)
			defer cancel()
			if err := do(ctx, n); err != nil {
				mu.Lock()
				defer mu.Unlock()
				waiting = append(waiting, fmt.Sprintf("%s: %v", n.Name, err))
			}
		})
	}

	wg.Wait()
	slices.Sort(waiting)
	return waiting
}

// namedLimit is how many are named of those who are waited for; their reasons are long.
const namedLimit = 5

// DescribeWaiting is the end of a sentence for people that names those who are waited for, each with the reason, as
// ChangeAll returns them. There is one at least.
func DescribeWaiting(all []string) string {
	named := all[:min(len(all), namedLimit)]
	text := fmt.Sprintf("it is waited for %d: %s", len(all), strings.Join(named, "; "))
	if more := len(all) - len(named); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}
