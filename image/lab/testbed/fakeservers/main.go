// Command fakeservers runs fake servers for an appliance that runs somewhere, for
// instance in a sandbox. It prints what happens to them.
//
//	fakeservers -n 10 -netns /proc/4711/ns/net -boot http://172.22.0.1:6180 -site >site.yaml
//	fakeservers -n 10 -netns /proc/4711/ns/net -boot http://172.22.0.1:6180 -control 127.0.0.1:8100
//	curl 127.0.0.1:8100                                        # each host, what was done to it
//	curl 127.0.0.1:8100/node3/faults -d '{"Hang": true}'       # see simulator.Faults
//	curl 127.0.0.1:8100/node3/power -d true                    # its button
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"

	"firstlight.dev/firstlight/image/lab/simulator"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "fakeservers:", err)
		os.Exit(1)
	}
}

func run() error {
	c := simulator.Config{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flag.IntVar(&c.Hosts, "n", 10, "hosts")
	flag.StringVar(&c.Boot, "boot", "http://172.22.0.1:6180", "the appliance's boot server")
	flag.StringVar(&c.Namespace, "netns", "", "network namespace of the hosts, a file such as /proc/PID/ns/net")
	flag.BoolVar(&c.PlainBMC, "plain", false, "BMCs speak HTTP (redfish+http)")
	flag.DurationVar(&c.BootTime, "boottime", 0, "from power on to the agent's first call (default 3s)")
	site := flag.Bool("site", false, "print a site document of the hosts and end")
	nic := flag.String("nic", "eth0", "the appliance's provisioning NIC, for -site")
	control := flag.String("control", "127.0.0.1:8100", "address of the control server")
	flag.Parse()
	f, err := simulator.Start(c)
	if err != nil {
		return err
	}
	defer f.Close()

	if *site {
		fmt.Print(f.SiteDocument(*nic))
		return nil
	}

	server := &http.Server{Addr: *control, Handler: handler(f)}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	go func() { <-stop; server.Close() }()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}

	return nil
}

// host is what is shown of one.
type host struct {
	Name, MAC, BMC string
	State          simulator.State
	Done           simulator.Counters
	Disks          []simulator.Disk
}

func handler(f *simulator.Simulator) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		var all []host
		for _, h := range f.Hosts() {
			all = append(all, host{h.Name, h.MAC, h.BMC(), h.State(), h.Counters(), h.Disks()})
		}

		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		_ = out.Encode(all)
	})
	change := func(path string, do func(*simulator.Server, *json.Decoder) error) {
		mux.HandleFunc("POST /{host}/"+path, func(w http.ResponseWriter, r *http.Request) {
			for _, h := range f.Hosts() {
				if h.Name != r.PathValue("host") {
					continue
				}
				if err := do(h, json.NewDecoder(r.Body)); err != nil {
					http.Error(w, err.Error(), http.StatusBadRequest)
				}
				return
			}
			http.NotFound(w, r)
		})
	}
	change("faults", func(h *simulator.Server, in *json.Decoder) error {
		var faults simulator.Faults
		in.DisallowUnknownFields()
		err := in.Decode(&faults)
		if err == nil {
			h.SetFaults(faults)
		}

		return err
	})
	change("power", func(h *simulator.Server, in *json.Decoder) error {
		var on bool
		err := in.Decode(&on)
		if err == nil {
			h.Power(on)
		}

		return err
	})
	return mux
}
