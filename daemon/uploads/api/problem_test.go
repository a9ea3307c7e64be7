package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timed is a connection that says until when it may be written to.
type timed struct {
	*httptest.ResponseRecorder
	until  time.Time
	during []time.Time // of each write
}

func (c *timed) SetWriteDeadline(t time.Time) error { c.until = t; return nil }

func (c *timed) Write(b []byte) (int, error) {
	c.during = append(c.during, c.until)
	return c.ResponseRecorder.Write(b)
}

func TestAnswersAreNotWrittenForEver(t *testing.T) {
	a := &Agent{Config: Config{Silence: time.Minute}, document: []byte("{}")}
	for name, answer := range map[string]func(http.ResponseWriter) error{
		"record":   func(w http.ResponseWriter) error { return a.writeJSON(w, http.StatusOK, []int{1, 2}) },
		"document": func(w http.ResponseWriter) error { return a.serveOpenAPI(w, nil, call{}) },
	} {
		c := &timed{ResponseRecorder: httptest.NewRecorder()}
		require.NoError(t, answer(c), name)
		require.NotEmpty(t, c.during, name)
		for _, until := range c.during {
			assert.WithinDuration(t, time.Now().Add(time.Minute), until, time.Minute, name)
		}
		assert.Zero(t, c.until, "%s: a transfer by the same connection has its own", name)
		assert.Equal(t, http.StatusOK, c.Code, name)
	}
}
