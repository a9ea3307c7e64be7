package boottrace_test

import (
	"encoding/json"
	"net"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/pxe/boottrace"
)

func mac(i int) net.HardwareAddr { return net.HardwareAddr{0x52, 0x54, 0, 0, byte(i >> 8), byte(i)} }

func TestOneBoot(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	b := &boottrace.Recorder{Now: func() time.Time { return now }}
	for _, step := range []boottrace.Step{boottrace.StepDiscover, boottrace.StepLease, boottrace.StepTFTP, boottrace.StepTFTP, boottrace.StepDiscover, boottrace.StepScript} {
		now = now.Add(time.Second)
		b.Add(boottrace.Event{MAC: mac(1), Step: step, Detail: string(step)})
	}
	r, ok := b.Get(mac(1))
	require.True(t, ok)
	assert.Equal(t, 1, r.Boots, "iPXE's own DISCOVER is of the same boot")
	assert.Equal(t, boottrace.StepScript, r.Last.Step)
	var steps []boottrace.Step
	for _, m := range r.Marks {
		steps = append(steps, m.Step)
	}
	assert.Equal(t, []boottrace.Step{boottrace.StepLease, boottrace.StepTFTP, boottrace.StepDiscover, boottrace.StepScript}, steps)
	assert.Equal(t, 2, r.Marks[1].Count)

	now = now.Add(time.Hour)
	b.Add(boottrace.Event{MAC: mac(1), Step: boottrace.StepDiscover, Refused: "no"})
	r, _ = b.Get(mac(1))
	assert.Equal(t, 2, r.Boots)
	assert.Len(t, r.Marks, 1)
	assert.Equal(t, "no", r.Refused)
}

// TestARefusedFileHidesNoneThatWasGiven: firmware asks for this and that once it has its boot program.
func TestARefusedFileHidesNoneThatWasGiven(t *testing.T) {
	b := &boottrace.Recorder{}
	b.Add(boottrace.Event{MAC: mac(1), Step: boottrace.StepTFTP, Detail: "wrong.efi", Refused: "there is no wrong.efi"})
	b.Add(boottrace.Event{MAC: mac(1), Step: boottrace.StepTFTP, Detail: "snponly.efi", Bytes: 9, Total: 9})
	b.Add(boottrace.Event{MAC: mac(1), Step: boottrace.StepTFTP, Detail: "other.cfg", Refused: "there is no other.cfg"})
	r, _ := b.Get(mac(1))
	require.Len(t, r.Marks, 1)
	assert.Equal(t, "snponly.efi", r.Marks[0].Detail)
	assert.Empty(t, r.Marks[0].Refused)
	assert.Equal(t, 3, r.Marks[0].Count)
	assert.Equal(t, "other.cfg", r.Last.Detail)
	assert.Equal(t, "there is no other.cfg", r.Refused)
}

// TestFloodForgetsStrangersFirst: made-up machines do not push out one that boots.
func TestFloodForgetsStrangersFirst(t *testing.T) {
	b := &boottrace.Recorder{Limit: 10}
	for _, step := range []boottrace.Step{boottrace.StepDiscover, boottrace.StepLease, boottrace.StepTFTP} {
		b.Add(boottrace.Event{MAC: mac(1), Step: step})
	}
	for i := range 1000 {
		b.Add(boottrace.Event{MAC: mac(100 + i), Step: boottrace.StepDiscover})
	}
	assert.Len(t, b.List(), 10)
	_, ok := b.Get(mac(1))
	assert.True(t, ok)
}

func TestServeHTTP(t *testing.T) {
	b := &boottrace.Recorder{}
	b.Add(boottrace.Event{MAC: mac(1), Step: boottrace.StepKernel, Bytes: 5, Total: 9})
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest("GET", "/machines", nil))
	var all []boottrace.Trace
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &all))
	require.Len(t, all, 1)
	assert.EqualValues(t, 9, all[0].Last.Total)
	for path, code := range map[string]int{"/machines/52:54:00:00:00:01": 200, "/machines/52-54-00-00-00-02": 404} {
		w = httptest.NewRecorder()
		b.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		assert.Equal(t, code, w.Code, path)
	}
	w = httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest("DELETE", "/machines", nil))
	assert.Equal(t, 405, w.Code)
	var none *boottrace.Recorder
	none.Add(boottrace.Event{MAC: mac(1)})
	assert.Empty(t, none.List())
}

func TestProgressMovesAStepWithoutCountingIt(t *testing.T) {
	now := time.Unix(1000, 0)
	b := &boottrace.Recorder{Now: func() time.Time { return now }}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	image := boottrace.Event{MAC: mac, Step: boottrace.StepImage, Detail: "images/debian", Total: 100}
	b.Progress(image) // nobody noted it
	_, known := b.Get(mac)
	assert.False(t, known)
	b.Add(image)
	now = now.Add(10 * time.Second)
	image.Bytes = 40
	b.Progress(image)
	r, _ := b.Get(mac)
	want := boottrace.Mark{Step: boottrace.StepImage, Time: now, Count: 1, Detail: "images/debian", Bytes: 40, Total: 100}
	assert.Equal(t, want, r.Last)
	assert.Equal(t, []boottrace.Mark{want}, r.Marks)
	b.Progress(boottrace.Event{MAC: mac, Step: boottrace.StepKernel, Detail: "vmlinuz", Bytes: 7})
	r, _ = b.Get(mac)
	assert.Equal(t, []boottrace.Mark{want}, r.Marks)
}
