package simulator

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/u-root/u-root/pkg/cpio"
)

// requestTimeout is how long a firmware waits before it asks again: iPXE's scripts say 10 s.
const requestTimeout = 10 * time.Second

// runBoot is what a host does from power on: the network if it was told so, else its disk. A disk without
// a system is passed over, as a firmware does.
func (h *Server) runBoot(r *powerOnPeriod, network bool) {
	if !sleep(r.ctx, h.simulator.config.BootTime) {
		return
	}

	if network {
		if err := h.acquireAddress(r.ctx); err != nil {
			h.logEvent("boot: %v", err)
			h.bootAgain(r)
			return
		}
	}

	for network {
		script, err := h.fetchScript(r.ctx)
		if err != nil {
			h.logEvent("boot: no script: %v", err)
			break // firmware goes on to the next device
		}
		if script.wait {
			h.logEvent("boot: waits: %s", script.output)
			if !sleep(r.ctx, requestTimeout) {
				return
			}
			continue
		}
		if script.kernel == "" {
			h.logEvent("boot: sent to its disk: %s", script.output)
			break
		}

		trust, err := h.load(r.ctx, script)
		if err != nil {
			h.logEvent("boot: ramdisk not loaded: %v", err)
			if !sleep(r.ctx, requestTimeout) {
				return
			}
			continue
		}

		if err := h.checkRamdiskAddress(script.args); err != nil {
			h.logEvent("boot: %v", err)
			h.setState(r, Nothing, nil)
			return
		}

		h.runRamdisk(r, script.args, trust)
		return
	}

	if !h.isInstalled() {
		h.setState(r, Nothing, nil)
		h.bootAgain(r)
		return
	}

	if err := h.releaseAddress(); err != nil {
		h.logEvent("boot: %v", err)
	}
	h.setState(r, OnDisk, nil)
}

// bootAgain begins again with the network, where the firmware does so.
func (h *Server) bootAgain(r *powerOnPeriod) {
	h.mu.Lock()
	again := h.netFirst
	h.mu.Unlock()
	if again && sleep(r.ctx, requestTimeout) {
		h.runBoot(r, true)
	}
}

// isInstalled tells whether a whole system is on one of the disks.
func (h *Server) isInstalled() bool {
	for _, d := range h.Disks() {
		if d.Image != "" {
			return true
		}
	}
	return false
}

// script is what matters of an iPXE script.
type script struct {
	kernel  string
	initrds []string
	args    map[string]string // of the kernel's command line
	wait    bool              // it only asks again
	output  string            // what it shows
}

// fetchScript asks the boot server what DHCP would send iPXE to.
func (h *Server) fetchScript(ctx context.Context) (script, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := h.get(ctx, h.simulator.config.Boot+"/ipxe/"+strings.ReplaceAll(h.MAC, ":", "-"), "")
	if err != nil {
		return script{}, err
	}

	return parse(string(text)), nil
}

func parse(text string) script {
	s := script{args: map[string]string{}}
	local := false
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "echo":
			if s.output == "" {
				s.output = strings.Join(words[1:], " ")
			}
		case "sanboot", "exit":
			local = true
		case "kernel":
			s.parseKernel(words[1:])
		case "initrd":
			if url := findURL(words[1:]); url != "" {
				s.initrds = append(s.initrds, url)
			}
		}
	}

	s.wait = s.kernel == "" && !local
	return s
}

// parseKernel takes the words of a kernel line: options, the URL, arguments, and what happens on failure.
func (s *script) parseKernel(words []string) {
	url := findURL(words)
	if url == "" || s.kernel != "" {
		return // a script of Ironic's holds several; the first is the deploy ramdisk's
	}

	s.kernel = url
	for _, w := range words {
		if w == "||" {
			return
		}
		if key, value, ok := strings.Cut(w, "="); ok && w != url {
			s.args[key] = value
		}
	}
}

func findURL(words []string) string {
	for _, w := range words {
		if strings.HasPrefix(w, "http://") || strings.HasPrefix(w, "https://") {
			return w
		}
	}
	return ""
}

// load looks whether kernel and ramdisks are there, and reads from the last what the agent trusts.
func (h *Server) load(ctx context.Context, s script) (*x509.CertPool, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if _, err := h.get(ctx, s.kernel, "bytes=0-511"); err != nil {
		return nil, err
	}

	pool := x509.NewCertPool()
	for _, url := range s.initrds {
		end, err := h.get(ctx, url, "bytes=-65536")
		if err != nil {
			return nil, err
		}
		for _, root := range trustedCerts(end) {
			pool.AppendCertsFromPEM(root)
		}
	}

	return pool, nil
}

// trustedCerts finds, in the end of a ramdisk, the archive that was appended to it, and in that the
// certificates which the agent's configuration names.
func trustedCerts(end []byte) [][]byte {
	const magic, dir = "070701", "etc/ironic-python-agent.d/"
	var roots [][]byte
	for at := 0; ; at += len(magic) {
		i := bytes.Index(end[at:], []byte(magic))
		if i < 0 {
			return nil
		}

		at += i
		records, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(end[at:])))
		if err != nil {
			continue
		}

		files := map[string]string{}
		for _, r := range records {
			text, _ := io.ReadAll(io.NewSectionReader(r, 0, int64(r.FileSize)))
			files[r.Name] = string(text)
		}

		for name, text := range files {
			if !strings.HasPrefix(name, dir) || !strings.HasSuffix(name, ".conf") {
				continue
			}
			for line := range strings.Lines(text) {
				if key, value, _ := strings.Cut(line, "="); strings.TrimSpace(key) == "cafile" {
					roots = append(roots, []byte(files[strings.TrimPrefix(strings.TrimSpace(value), "/")]))
				}
			}
		}

		if roots != nil {
			return roots
		}
	}
}

// get fetches a URL over plain HTTP from the host's address; span is a Range or "".
func (h *Server) get(ctx context.Context, url, span string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}

	want := http.StatusOK
	if span != "" {
		request.Header.Set("Range", span)
		want = http.StatusPartialContent
	}

	request.Close = true
	response, err := h.httpClient(nil).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()

	if response.StatusCode != want {
		return nil, fmt.Errorf("get %s: %s", url, response.Status)
	}

	return io.ReadAll(io.LimitReader(response.Body, 1<<20))
}

// httpClient speaks from the host's address and trusts the roots, nobody without any.
func (h *Server) httpClient(roots *x509.CertPool) *http.Client {
	if roots == nil {
		roots = x509.NewCertPool()
	}
	dial := h.simulator.wire.dial(h.addr())
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, family, addr string) (net.Conn, error) {
			ctx, cancel := context.WithCancel(ctx) // that of the request does not end it (net/http)
			defer cancel()
			defer context.AfterFunc(h.simulator.ctx, cancel)()
			return dial(ctx, family, addr)
		},
		DisableCompression: true, IdleConnTimeout: 2 * time.Minute,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}
}
