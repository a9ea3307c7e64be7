package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBPACommandLine(t *testing.T) {
	assert.Equal(t, 2, run(t.Context(), []string{"bpa", "--proposal", "perhaps"}))
	assert.Equal(t, 2, run(t.Context(), []string{"kubeconfig"}))
	assert.Equal(t, 2, run(t.Context(), []string{"kubeconfig", "../edge", "--dir", t.TempDir()}))
	assert.Equal(t, 1, run(t.Context(), []string{"kubeconfig", "edge", "--dir", t.TempDir()}))
	assert.Equal(t, 1, run(t.Context(), []string{"bpa", "--kubeconfig", filepath.Join(t.TempDir(), "none")}))
}

func TestTheOperatorStartsAnewWhileTheAPIIsAway(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runs := 0
	runForever(ctx, slog.New(slog.DiscardHandler), time.Millisecond, func(context.Context) error {
		if runs++; runs == 3 {
			cancel()
		}
		return errors.New("connection refused")
	})
	assert.Equal(t, 3, runs, "it goes on until it is told to end")
}
