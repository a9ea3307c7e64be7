package api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/assets/status"
)

func TestLogin(t *testing.T) {
	want := status.Login{Code: "k3vd-7pqa-m2xe-wz4u", URLs: []string{"https://10.10.110.20/"}, Expires: time.Unix(5, 0).UTC()}
	var problem error
	var log bytes.Buffer
	ready, ended := make(chan struct{}), make(chan error)
	s := &Server{
		Socket: filepath.Join(t.TempDir(), "s"),
		Login: func(role, user string) (status.Login, error) {
			assert.Equal(t, []string{"operator", "ann@laptop"}, []string{role, user})
			return want, problem
		},
		Ready: func() { close(ready) },
		Log:   slog.New(slog.NewTextHandler(&log, nil)),
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- s.Run(ctx) }()
	<-ready

	client := Client{Socket: s.Socket}
	got, err := client.Login(t.Context(), "operator", "ann@laptop")
	require.NoError(t, err)
	assert.Equal(t, want, got)
	problem = errors.New("the page has no address")
	_, err = client.Login(t.Context(), "operator", "ann@laptop")
	assert.EqualError(t, err, "the page has no address")

	cancel()
	require.NoError(t, <-ended)
	assert.Contains(t, log.String(), `msg="code for the page asked" role=operator user=ann@laptop`)
	assert.NotContains(t, log.String(), want.Code, "a code is a secret")
}
