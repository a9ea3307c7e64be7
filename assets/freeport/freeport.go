// Package freeport finds ports for programs that must be told which one to listen on.
//
// A port that the kernel chose is the next one that it may choose for somebody else: while the program starts, a
// connection of any other program can take it. These are outside the kernel's range, where nothing is by chance.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
)

// Ports below first may be those of services of the machine.
const first = 10_000

var (
	mu    sync.Mutex
	given = map[int]bool{} // by this process, so that two programs of one test never meet
)

// FindTCP is a TCP port of 127.0.0.1 that nobody listens on.
func FindTCP() (int, error) {
	return find(func(address string) error {
		l, err := net.Listen("tcp4", address)
		if err != nil {
			return err
		}
		return l.Close()
	})
}

// FindUDP is a UDP port of 127.0.0.1 that nobody listens on.
func FindUDP() (int, error) {
	return find(func(address string) error {
		conn, err := net.ListenPacket("udp4", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func find(listen func(address string) error) (int, error) {
	end, err := lowestLocal()
	if err != nil {
		return 0, err
	}

	mu.Lock()
	defer mu.Unlock()
	var last error
	for range 1000 {
		port := first + rand.IntN(end-first)
		if given[port] {
			continue
		}
		if last = listen(fmt.Sprintf("127.0.0.1:%d", port)); last == nil {
			given[port] = true
			return port, nil
		}
	}
	return 0, errors.Join(fmt.Errorf("find free port from %d to %d: none", first, end-1), last)
}

// lowestLocal is the lowest port that the kernel gives to a connection (ip-sysctl, ip_local_port_range). Where it was set
// so low that it leaves no room, some ports above it are taken, too: they are at least not the next ones.
func lowestLocal() (int, error) {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read range of local ports: %w", err)
	}

	var lowest, highest int
	if _, err := fmt.Sscan(string(text), &lowest, &highest); err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	return max(lowest, 2*first), nil
}
