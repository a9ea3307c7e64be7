package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"firstlight.dev/firstlight/assets/bench"
	"firstlight.dev/firstlight/pxe/dhcp"
)

const (
	serveDHCPArg = "serve-dhcp" // this program as the server, in its namespace
	dhcpClients  = 1000         // machines that take turns
	dhcpRuns     = 5
	dhcpSeconds  = 2
	dhcpDrops    = 2.5 // per cent allowed
	dhcpCeiling  = 20000
)

// dhcpServer is one of those compared.
type dhcpServer struct {
	name  string
	note  string
	start func(ctx context.Context, p pair, dir string) (stop func(), err error)
}

func dhcpServers() []dhcpServer {
	return []dhcpServer{
		{"firstlight", "each lease fsynced before its ACK (group commit), dhcpd.leases rewritten besides", startFirstlight},
		{"dnsmasq", "lease file rewritten before the ACK, never fsynced, no ping", startDnsmasq},
		{"kea", "memfile, appended before the ACK, never fsynced, default threads, no lease file clean-up", startKea},
	}
}

// BenchmarkDHCP finds, for each server, the rate of DISCOVER-OFFER-REQUEST-ACK exchanges it
// keeps up with at no more than dhcpDrops per cent lost on either way. The servers take
// turns, so that other load on the machine hits all of them.
func BenchmarkDHCP(b *testing.B) {
	dir := bench.TempDir(b)
	bench.Run(b, "dhcp", func(ctx context.Context) ([]bench.Row, error) { return measureDHCP(ctx, dir) })
}

func measureDHCP(ctx context.Context, dir string) ([]bench.Row, error) {
	for _, tool := range []string{"perfdhcp", "dnsmasq", "kea-dhcp4"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("find %s: %w; run scripts/deps test bench", tool, err)
		}
	}
	servers := dhcpServers()
	rates, limits := make([][]float64, len(servers)), make([]int, len(servers))
	for run := range dhcpRuns {
		for i, s := range servers {
			rate, err := oneDHCP(ctx, s, filepath.Join(dir, fmt.Sprint(s.name, run)), &limits[i])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			fmt.Fprintf(os.Stderr, "dhcp %s run %d: %.0f exchanges/s\n", s.name, run+1, rate)
			rates[i] = append(rates[i], rate)
		}
	}
	ours := bench.Median(rates[0])
	var rows []bench.Row
	for i, s := range servers[1:] {
		r := bench.Row{
			Name: "dhcp-exchanges",
			Unit: "exchanges/s",
			Ours: ours,
			Note: fmt.Sprintf("medians of %d runs of %d s at <= %g %% drops, %d machines; ours: %s; %s: %s",
				dhcpRuns, dhcpSeconds, dhcpDrops, dhcpClients, servers[0].note, s.name, s.note),
		}
		rows = append(rows, r.More(s.name, bench.Median(rates[i+1]), []float64{10, 1}[i]))
	}
	return rows, nil
}

// oneDHCP starts the server anew and returns the best rate of one run. limit remembers
// from run to run at which rate to look.
func oneDHCP(ctx context.Context, s dhcpServer, dir string, limit *int) (float64, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, err
	}
	p, err := newPair(ctx, s.name[:3])
	if err != nil {
		return 0, err
	}
	defer p.remove()
	stop, err := s.start(ctx, p, dir)
	if err != nil {
		return 0, err
	}
	defer stop()
	// Every machine once, so that all runs meet the same number of leases.
	if _, err := runPerfdhcp(ctx, p, 300, 4); err != nil {
		return 0, err
	}
	if *limit == 0 {
		return searchDHCP(ctx, p, 200, 2, limit)
	}
	return searchDHCP(ctx, p, *limit, 1.25, limit)
}

// searchDHCP raises the rate by step as long as the server keeps up, then halves the step.
func searchDHCP(ctx context.Context, p pair, rate int, step float64, limit *int) (float64, error) {
	best, good := 0.0, 0
	for step > 1.06 && rate <= dhcpCeiling {
		r, err := runPerfdhcp(ctx, p, rate, dhcpSeconds)
		if err != nil {
			return 0, err
		}
		if r.drops <= dhcpDrops && r.rate >= 0.9*float64(rate) {
			best, good = max(best, r.rate), rate
		} else if good == 0 { // not even the first: begin lower
			if rate /= 2; rate < 10 {
				return 0, errors.New("keeps up with no rate")
			}
			continue
		} else {
			step = 1 + (step-1)/2
		}
		rate = int(float64(good) * step)
	}
	*limit = good
	return best, nil
}

type dhcpResult struct {
	rate  float64 // finished exchanges per second of sending
	drops float64 // per cent, the worse of the two ways
}

var (
	reAcks  = regexp.MustCompile(`REQUEST-ACK\*\*\*\nsent packets: \d+\nreceived packets: (\d+)`)
	reDrops = regexp.MustCompile(`drops ratio: ([0-9.]+) %`)
)

// runPerfdhcp sends at rate for so many seconds. It plays a relay with its own address.
func runPerfdhcp(ctx context.Context, p pair, rate, seconds int) (dhcpResult, error) {
	cmd := commandIn(ctx, p.client, "perfdhcp", "-4", "-l", "cli0", "-r", fmt.Sprint(rate), "-R", fmt.Sprint(dhcpClients), "-p", fmt.Sprint(seconds),
		"-W", "500000", "172.22.0.1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 3) { // 3: some exchanges did not complete
		return dhcpResult{}, fmt.Errorf("run perfdhcp: %w: %s", err, out)
	}
	m, drops := reAcks.FindSubmatch(out), reDrops.FindAllSubmatch(out, -1)
	if m == nil || len(drops) != 2 {
		return dhcpResult{}, fmt.Errorf("read perfdhcp's report: %s", out)
	}
	var r dhcpResult
	acks, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return dhcpResult{}, err
	}
	r.rate = float64(acks) / float64(seconds) // perfdhcp's own rate counts the wait at the end too
	for _, d := range drops {
		v, err := strconv.ParseFloat(string(d[1]), 64)
		if err != nil {
			return dhcpResult{}, err
		}
		r.drops = max(r.drops, v)
	}
	return r, nil
}

func startFirstlight(ctx context.Context, p pair, dir string) (func(), error) {
	a := netip.MustParseAddr
	c := dhcp.Config{
		Interface: "srv0", Server: a("172.22.0.1"), HTTP: "http://172.22.0.1:8080", LeaseDir: dir, ISCFile: filepath.Join(dir, "dhcpd.leases"),
		ProbeWait: time.Second,
		Subnets: []dhcp.Subnet{{
			Prefix: netip.MustParsePrefix("172.22.0.0/16"), Pool: dhcp.Range{First: a("172.22.16.0"), Last: a("172.22.79.255")}, Lease: time.Hour,
		}},
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startServer(ctx, p.server, nil, self, serveDHCPArg, path)
}

// serveDHCP is the child that startFirstlight starts.
func serveDHCP(ctx context.Context, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var c dhcp.Config
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	s, err := dhcp.New(c, dhcp.Deps{})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func startDnsmasq(ctx context.Context, p pair, dir string) (func(), error) {
	return startServer(ctx, p.server, nil, "dnsmasq", "-k", "-C", "/dev/null", "-p", "0", "-i", "srv0", "--no-ping", "--dhcp-lease-max=20000",
		"--dhcp-range=172.22.16.0,172.22.79.255,255.255.0.0,1h", "--dhcp-authoritative", "--quiet-dhcp", "--log-facility=/dev/null",
		"--dhcp-leasefile="+filepath.Join(dir, "leases"), "--pid-file="+filepath.Join(dir, "pid"), "-u", "root")
}

func startKea(ctx context.Context, p pair, dir string) (func(), error) {
	conf := fmt.Sprintf(`{"Dhcp4": {"interfaces-config": {"interfaces": ["srv0"], "dhcp-socket-type": "udp"},
"lease-database": {"type": "memfile", "persist": true, "name": %q, "lfc-interval": 0}, "valid-lifetime": 3600,
"subnet4": [{"id": 1, "subnet": "172.22.0.0/16", "pools": [{"pool": "172.22.16.0-172.22.79.255"}]}],
"loggers": [{"name": "kea-dhcp4", "severity": "ERROR", "output_options": [{"output": "stderr"}]}]}}`, filepath.Join(dir, "leases.csv"))
	path := filepath.Join(dir, "kea.json")
	if err := os.WriteFile(path, []byte(conf), 0o644); err != nil {
		return nil, err
	}
	return startServer(ctx, p.server, []string{"KEA_PIDFILE_DIR=" + dir, "KEA_LOCKFILE_DIR=" + dir}, "kea-dhcp4", "-c", path)
}
