package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

var kept [][]byte

func TestAHeapIsCollectedFromASizeOn(t *testing.T) {
	percent := debug.SetGCPercent(150)
	t.Cleanup(func() { debug.SetGCPercent(percent); kept = nil })
	runtime.GC()
	collectFrom(64 << 20)

	before := collections()
	for range 32 {
		kept = append(kept, make([]byte, 1<<20))
	}
	if n := collections() - before; n != 0 {
		t.Fatalf("collected %d times below the size", n)
	}

	for began := time.Now(); ; {
		kept = append(kept, make([]byte, 1<<20))
		if now := debug.SetGCPercent(-1); now == 150 {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("GOGC is not back above the size")
		}
		if len(kept) > 128 {
			kept = kept[:32]
		}
	}
	if limit := debug.SetMemoryLimit(-1); limit < 1<<60 {
		t.Fatalf("there is still a limit: %d", limit)
	}
}

func collections() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumGC
}
