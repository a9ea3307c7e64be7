package shell

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is what a node says of itself.
type Report struct {
	CmdLine     []string // the kernel's parameters
	IOMMUGroups int
	Hostname    string
	Time        time.Time
	NICs        []NIC
	Defaults    []Route // default routes, IPv4 first
	Resolvers   []netip.Addr
	Routers     map[netip.Addr]string // that were asked: "echo" (answers ping), "neighbour" (is there), or "" (does not answer)
	DNS         map[netip.Addr][]byte // that were asked: what came back; nil if nothing did
}

// NIC is one network interface.
type NIC struct {
	Name      string
	MAC       string
	Up        bool // it has a link
	MTU       int
	Master    string // bond or bridge that it is part of
	VLAN      int    // 0: none
	Parent    string // of a VLAN
	Addresses []netip.Prefix
}

// Route is a default route.
type Route struct {
	Via       netip.Addr // invalid: on the link itself
	Interface string
}

// NIC finds an interface by name.
func (r Report) NIC(name string) (NIC, bool) {
	i := slices.IndexFunc(r.NICs, func(n NIC) bool { return n.Name == name })
	if i < 0 {
		return NIC{}, false
	}
	return r.NICs[i], true
}

// script asks a Linux with a POSIX shell, sysfs and iproute2, as any user. It prints words
// separated by blanks, one fact a line. What a node lacks, it leaves out. Its arguments are
// a DNS query in printf's octal form, routers to ask beside the node's own, "--", and
// resolvers to ask; without these the node's own.
const script = `LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin; export LC_ALL PATH
echo "time $(date +%s.%N)"
echo "host $(cat /proc/sys/kernel/hostname)"
echo "cmdline $(cat /proc/cmdline)"
echo "iommu $(ls /sys/kernel/iommu_groups 2>/dev/null | wc -l)"
for d in /sys/class/net/*; do
	m=; [ -e "$d/master" ] && m=$(readlink "$d/master") && m=${m##*/}
	echo "nic ${d##*/} $(cat "$d/address") $(cat "$d/carrier" 2>/dev/null || echo 0) $(cat "$d/mtu") ${m:--} $(cat "$d/bonding_slave/perm_hwaddr" 2>/dev/null || echo -)"
done
ip -d -o link show | sed -n 's/^[0-9]*: \([^@: ]*\)@\([^:]*\):.* vlan protocol [^ ]* id \([0-9]*\).*/vlan \1 \3 \2/p'
ip -o addr show | while read -r _ n f a _; do case $f in inet|inet6) echo "addr $n $a";; esac; done
{ ip -4 route show default; ip -6 route show default; } | while read -r _ k v x n _; do
	case $k in via) echo "route $v $n";; dev) echo "route - $v";; esac
done
resolvers=$(cat /run/systemd/resolve/resolv.conf /etc/resolv.conf 2>/dev/null | sed -n 's/^nameserver *\([^ ]*\).*/\1/p' | grep -v '^127[.]' | sort -u)
for r in $resolvers; do echo "resolver $r"; done
packet=$1; shift
routers="$(ip route show default; ip -6 route show default)"
routers=$(echo "$routers" | sed -n 's/^default via \([^ ]*\).*/\1/p')
while [ $# -gt 0 ] && [ "$1" != -- ]; do routers="$routers $1"; shift; done
for r in $(printf '%s\n' $routers | sort -u); do
	if ping -c 2 -W 2 "$r" >/dev/null 2>&1; then echo "router $r echo"
	else echo "router $r $(ip neigh show to "$r" | sed -n 's/.*lladdr .*\(REACHABLE\|DELAY\|PROBE\|PERMANENT\).*/neighbour/p' | head -n1)"; fi
done
shift
[ $# -gt 0 ] || set -- $resolvers
for r in "$@"; do
	echo "dns $r $(timeout 4 bash -c 'exec 3<>"/dev/udp/$0/53" && printf "$1" >&3 && dd bs=1500 count=1 status=none <&3' "$r" "$packet" 2>/dev/null | od -An -v -tx1 | tr -d ' \n')"
done
echo end
`

// parse reads what script printed. A line that is not understood is passed over; a text
// that does not end with "end" was cut off.
func parse(text string) (Report, error) {
	r := Report{Routers: map[netip.Addr]string{}, DNS: map[netip.Addr][]byte{}}
	complete := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}

		complete = f[0] == "end"
		read, known := words[f[0]]
		if f = f[1:]; known && len(f) >= read.least {
			read.into(&r, f)
		}
	}

	if !complete {
		return r, fmt.Errorf("what the node reported is truncated: %q", tail(text, 200))
	}

	return r, nil
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// words are the first words of lines, each with how many words must follow.
var words = map[string]struct {
	least int
	into  func(*Report, []string)
}{
	"time": {1, func(r *Report, f []string) {
		whole, part, _ := strings.Cut(f[0], ".")
		s, err := strconv.ParseInt(whole, 10, 64)
		if err != nil {
			return
		}

		ns, _ := strconv.ParseInt((part + "000000000")[:9], 10, 64) // "%N" where date knows no fractions: 0
		r.Time = time.Unix(s, ns)
	}},
	"host":    {1, func(r *Report, f []string) { r.Hostname = f[0] }},
	"cmdline": {1, func(r *Report, f []string) { r.CmdLine = f }},
	"iommu":   {1, func(r *Report, f []string) { r.IOMMUGroups, _ = strconv.Atoi(f[0]) }},
	"nic": {6, func(r *Report, f []string) {
		n := NIC{Name: f[0], MAC: strings.ToLower(f[1]), Up: f[2] == "1", Master: f[4]}
		n.MTU, _ = strconv.Atoi(f[3])
		if n.Master == "-" {
			n.Master = ""
		}

		if f[5] != "-" { // in a bond every NIC shows the bond's MAC
			n.MAC = strings.ToLower(f[5])
		}

		r.NICs = append(r.NICs, n)
	}},
	"vlan": {3, func(r *Report, f []string) {
		for i := range r.NICs {
			if r.NICs[i].Name == f[0] {
				r.NICs[i].VLAN, _ = strconv.Atoi(f[1])
				r.NICs[i].Parent = f[2]
			}
		}
	}},
	"addr": {2, func(r *Report, f []string) {
		p, err := netip.ParsePrefix(f[1])
		for i := range r.NICs {
			if err == nil && r.NICs[i].Name == f[0] {
				r.NICs[i].Addresses = append(r.NICs[i].Addresses, p)
			}
		}
	}},
	"route": {2, func(r *Report, f []string) {
		via, _ := netip.ParseAddr(f[0])
		r.Defaults = append(r.Defaults, Route{via, f[1]})
	}},
	"resolver": {1, func(r *Report, f []string) {
		if a, err := netip.ParseAddr(f[0]); err == nil && !a.IsLoopback() && !slices.Contains(r.Resolvers, a) {
			r.Resolvers = append(r.Resolvers, a)
		}
	}},
	"router": {1, func(r *Report, f []string) {
		if a, err := netip.ParseAddr(f[0]); err == nil {
			r.Routers[a] = strings.Join(f[1:], " ")
		}
	}},
	"dns": {1, func(r *Report, f []string) {
		if a, err := netip.ParseAddr(f[0]); err == nil {
			r.DNS[a] = nil
			if packet, err := hex.DecodeString(strings.Join(f[1:], "")); err == nil && len(packet) > 0 {
				r.DNS[a] = packet
			}
		}
	}},
}

// octalEscape is a packet as printf prints it: \ooo for each byte.
func octalEscape(packet []byte) string {
	var b strings.Builder
	for _, c := range packet {
		fmt.Fprintf(&b, `\%03o`, c)
	}
	return b.String()
}
