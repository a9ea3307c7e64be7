package main

import (
	"math"
	"runtime"
	"runtime/debug"
)

// startHeap is how large a program's heap gets before it is collected for the first time, in bytes. While it starts,
// nearly all that it makes stays, and Go would look through it again and again: at 4 MiB, at 8, at 16. Each of them
// gets larger than this in its first seconds anyway.
func startHeap(program string) int64 {
	switch program {
	case "kube-apiserver":
		return 64 << 20
	case "kubectl":
		return 0
	}
	return 32 << 20
}

// collectFrom lets a heap grow to a size, and from its first collection on as GOGC says.
func collectFrom(size int64) {
	if size == 0 {
		return
	}

	percent := debug.SetGCPercent(-1)
	debug.SetMemoryLimit(size)

	first := &struct{ pointer *int }{new(int)}
	runtime.AddCleanup(first, func(percent int) {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(math.MaxInt64)
	}, percent)
}
