package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Row is one figure beside one peer's. Bar is the least ratio aimed at, 0 for none.
type Row struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Ours  float64 `json:"ours"`
	Peer  string  `json:"peer"`
	Value float64 `json:"peer_value"`
	Ratio float64 `json:"ratio"` // how many times better ours is
	Bar   float64 `json:"bar"`
	Note  string  `json:"note"` // what each guarantees
}

// String is the row that people and scripts read.
func (r Row) String() string {
	verdict := "ok"
	if r.Ratio < r.Bar {
		verdict = "short"
	}
	return fmt.Sprintf("%s ours=%.4g %s peer=%s:%.4g %s ratio=%.2f bar=>=%g %s", r.Name, r.Ours, r.Unit, r.Peer, r.Value, r.Unit, r.Ratio, r.Bar, verdict) +
		"\n  note: " + r.Note
}

func writeRows(dir, name string, rows []Row) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	path := filepath.Join(dir, name+".json")
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write rows %s: %w", path, err)
	}
	return nil
}

// median of a non-empty list.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
