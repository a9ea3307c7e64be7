// Package bench shows measurements: one row a figure, on the screen and as JSON in
// build/bench. A row measures and does not judge: a figure that falls short is printed as
// one that does, and nothing fails.
package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Dir is where rows are kept, from the top of the repository.
const Dir = "build/bench"

// Row is one figure, alone or beside one of a peer. A peer called "bar" is a goal.
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

// Less puts a peer beside a figure of which less is better.
func (r Row) Less(peer string, value, bar float64) Row {
	r.Peer, r.Value, r.Bar, r.Ratio = peer, value, bar, value/r.Ours
	return r
}

// LoadAverage is that of the machine over the last minute, for notes: other work makes every figure worse.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
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

// Write prints the rows to w and keeps them as dir/NAME.json.
func Write(w io.Writer, dir, name string, rows []Row) error {
	for _, r := range rows {
		if _, err := fmt.Fprintln(w, r); err != nil {
			return fmt.Errorf("show rows: %w", err)
		}
	}
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return fmt.Errorf("keep rows: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("keep rows: %w", err)
	}
	path := filepath.Join(dir, name+".json")
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("keep rows: %w", err)
	}
	return nil
}

// Median of a list that is not empty.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
