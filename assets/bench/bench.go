// Package bench is the harness of all benchmarks. A benchmark measures once and returns rows, one per measurement:
// they go to the screen, as JSON to build/bench, and as metrics to whoever reads what `go test -bench` prints. A row
// measures and does not judge: one that falls short of its bar says so, and nothing fails.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Dir is where rows are kept, from the top of the repository.
const Dir = "build/bench"

// Row is one measurement, alone or compared with one of a peer. A peer called "bar" is a goal.
type Row struct {
	Name  string  `json:"name"` // such as image/rebuild
	Unit  string  `json:"unit"`
	Ours  float64 `json:"ours"`
	Peer  string  `json:"peer,omitempty"`
	Value float64 `json:"peer_value,omitempty"`
	Ratio float64 `json:"ratio,omitempty"` // how many times better ours is
	Bar   float64 `json:"bar,omitempty"`   // the least ratio aimed at, 0 for none
	Note  string  `json:"note"`            // what each guarantees, how often it was run
}

// Less compares with a peer where less is better.
func (r Row) Less(peer string, value, bar float64) Row {
	r.Peer, r.Value, r.Bar, r.Ratio = peer, value, bar, value/r.Ours
	return r
}

// More compares with a peer where more is better.
func (r Row) More(peer string, value, bar float64) Row {
	r.Peer, r.Value, r.Bar, r.Ratio = peer, value, bar, r.Ours/value
	return r
}

// String is the row that people and scripts read.
func (r Row) String() string {
	text := fmt.Sprintf("%s ours=%.4g %s", r.Name, r.Ours, r.Unit)
	if r.Peer != "" {
		verdict := "ok"
		if r.Ratio < r.Bar {
			verdict = "short"
		}
		text += fmt.Sprintf(" peer=%s:%.4g %s ratio=%.2f bar=>=%g %s", r.Peer, r.Value, r.Unit, r.Ratio, r.Bar, verdict)
	}
	return text + "\n  note: " + r.Note
}

// Run measures, once whatever -benchtime says, and reports the rows as build/bench/NAME.json; with an error those
// that were measured before it. The context ends when the user interrupts.
func Run(b *testing.B, name string, measure func(context.Context) ([]Row, error)) {
	b.Helper()
	ctx, stop := signal.NotifyContext(b.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	rows, failed := measure(ctx)
	if len(rows) > 0 {
		top, err := FindTop()
		failed = errors.Join(failed, err, writeRows(os.Stdout, filepath.Join(top, Dir), name, rows))
	}

	for _, r := range rows {
		b.Run(strings.TrimSuffix(r.Name+"/"+r.Peer, "/"), r.report)
	}

	if failed != nil {
		b.Fatal(failed)
	}
}

// report reports a row as the metrics of a benchmark of its own.
func (r Row) report(b *testing.B) {
	b.ReportMetric(0, "ns/op") // leaves it out
	b.ReportMetric(r.Ours, r.Unit)
	if r.Peer != "" {
		b.ReportMetric(r.Ratio, "ratio")
	}
}

// writeRows prints the rows to w and saves them as dir/NAME.json.
func writeRows(w io.Writer, dir, name string, rows []Row) error {
	for _, r := range rows {
		if _, err := fmt.Fprintln(w, r); err != nil {
			return fmt.Errorf("show rows: %w", err)
		}
	}

	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return fmt.Errorf("encode rows: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save rows: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".json"), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("save rows: %w", err)
	}

	return nil
}
