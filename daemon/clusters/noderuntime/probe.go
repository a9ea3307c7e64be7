package noderuntime

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"firstlight.dev/firstlight/pxe/limit"
)

// RunProbe serves what the installer's verification asks of a pod (daemon/clusters/installer/verify.go):
//
//	/who            the node's and the pod's name, from the environment (NODE, POD)
//	/ask?url=…      the same of another pod or a Service, asked from here
//	/resolve?name=… the addresses of a name, asked from here
//
// It runs in the verification's own namespace, which goes when the verification is over.
func RunProbe(ctx context.Context, listen string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listen for questions: %w", err)
	}

	server := &limit.Server{Handler: probeHandler(), Log: slog.Default()}
	if err := server.Serve(ctx, listener); ctx.Err() == nil {
		return fmt.Errorf("answer questions: %w", err)
	}

	return nil
}

const questionTimeout = 5 * time.Second

func probeHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /who", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]string{"node": os.Getenv("NODE"), "pod": os.Getenv("POD")}, nil)
	})
	// A connection of its own for each question: a Service then chooses a pod anew.
	client := &http.Client{Timeout: questionTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	mux.HandleFunc("GET /ask", func(w http.ResponseWriter, r *http.Request) {
		var said map[string]string
		request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.URL.Query().Get("url"), nil)
		if err == nil {
			var response *http.Response
			if response, err = client.Do(request); err == nil {
				defer response.Body.Close()
				err = json.NewDecoder(io.LimitReader(response.Body, 4096)).Decode(&said)
			}
		}

		writeJSON(w, said, err)
	})
	mux.HandleFunc("GET /resolve", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), questionTimeout)
		defer cancel()
		addrs, err := net.DefaultResolver.LookupHost(ctx, r.URL.Query().Get("name"))
		writeJSON(w, addrs, err)
	})
	return mux
}

// writeJSON writes a value, or 502 and why there is none.
func writeJSON(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
