package remote

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// KnownHosts is a file for ssh's UserKnownHostsFile (sshd(8)): host keys, each as in
// authorized_keys, by address.
func KnownHosts(keys map[netip.Addr]string) []byte {
	var b bytes.Buffer
	for _, addr := range slices.SortedFunc(maps.Keys(keys), netip.Addr.Compare) {
		fields := strings.Fields(keys[addr])
		if len(fields) >= 2 {
			fmt.Fprintf(&b, "%s %s %s\n", addr, fields[0], fields[1])
		}
	}
	return b.Bytes()
}

// ReadKnownHosts reads such a file; names that are no addresses are passed over.
func ReadKnownHosts(text []byte) map[netip.Addr]string {
	keys := map[netip.Addr]string{}
	for line := range strings.Lines(string(text)) {
		if addr, key := knownHost(line); addr.IsValid() {
			keys[addr] = key
		}
	}
	return keys
}

// WithoutHosts is such a file without the lines of some addresses.
func WithoutHosts(text []byte, gone []netip.Addr) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(string(text)) {
		if addr, _ := knownHost(line); !addr.IsValid() || !slices.Contains(gone, addr) {
			b.WriteString(line)
		}
	}
	return b.Bytes()
}

// knownHost is one line: the address, in brackets if it is of IPv6 or has a port (sshd(8)), and its key.
func knownHost(line string) (netip.Addr, string) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return netip.Addr{}, ""
	}

	name, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "["), "]")
	addr, err := netip.ParseAddr(name)
	if err != nil {
		return netip.Addr{}, ""
	}

	return addr, fields[1] + " " + fields[2]
}
