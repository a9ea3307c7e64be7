package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"firstlight.dev/firstlight/assets/atomicfile"
)

// List returns all leases for readers, by subnet and address.
func (j *Journal) List() []ListedLease {
	now, wall := j.Now(), j.clock.Wall()
	kept := j.Leases()
	slices.SortFunc(kept, func(a, b Lease) int { return a.Addr.Compare(b.Addr) })
	all := make([]ListedLease, len(kept))
	for i, l := range kept {
		all[i] = l.list(now, wall)
	}

	return all
}

// AppendISC appends leases as ISC dhcpd's leases(5) text. Readers take the last block of
// a MAC for the truth and use it only if active, so active blocks come last.
func AppendISC(b []byte, leases []ListedLease) []byte {
	b = append(b, "# Leases of this server in the format of dhcpd.leases(5). Rewritten at every change.\nauthoring-byte-order little-endian;\n"...)
	rank := func(l ListedLease) int {
		if l.State == Active.String() {
			return 1
		}
		return 0
	}
	leases = slices.Clone(leases)
	slices.SortStableFunc(leases, func(x, y ListedLease) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), x.Starts.Compare(y.Starts), x.Addr.Compare(y.Addr))
	})
	for _, l := range leases {
		b = fmt.Appendf(b, "lease %v {\n  starts %s;\n  ends %s;\n  cltt %s;\n  binding state %s;\n  next binding state free;\n  hardware ethernet %s;\n",
			l.Addr, iscTime(l.Starts), iscTime(l.Ends), iscTime(l.Starts), l.State, l.MAC)
		if l.Hostname != "" {
			b = fmt.Appendf(b, "  client-hostname \"%s\";\n", iscText(l.Hostname))
		}
		b = append(b, "}\n"...)
	}

	return b
}

// iscTime is weekday and UTC time as dhcpd writes them.
func iscTime(t time.Time) string {
	t = t.UTC()
	return fmt.Sprintf("%d %s", t.Weekday(), t.Format("2006/01/02 15:04:05"))
}

// iscText keeps what cannot end the string or the block early, for the simplest of readers.
func iscText(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune("\"\\{};#", r) {
			return '_'
		}
		return r
	}, s)
}

// Bounds of the ISC file's rewriting: a change shows after iscPause at the latest, unless
// writing takes a tenth of it; what expires shows within iscRefresh.
const (
	iscPause   = 250 * time.Millisecond
	iscRefresh = 30 * time.Second
)

// MaintainISC writes the leases to path at every change until ctx ends. A reader sees the old
// or the new text. onError hears what could not be written; it is tried again.
func (j *Journal) MaintainISC(ctx context.Context, path string, onError func(error)) error {
	refresh := time.NewTicker(iscRefresh)
	defer refresh.Stop()
	for {
		_, changed := j.Changes()
		begin := time.Now()
		if err := WriteISC(path, j.List()); err != nil {
			onError(err)
		}

		pause := time.NewTimer(max(iscPause, 10*time.Since(begin)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return WriteISC(path, j.List())
		case <-pause.C:
		}

		select {
		case <-ctx.Done():
			return WriteISC(path, j.List())
		case <-changed:
		case <-refresh.C:
		}
	}
}

// WriteISC replaces path by the ISC text of leases.
func WriteISC(path string, leases []ListedLease) error {
	return atomicfile.Write(path, AppendISC(nil, leases), 0o644)
}
