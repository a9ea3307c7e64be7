package metrics

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Remote gathers the counters of another process of the appliance.
type Remote struct {
	Socket string // of a server that answers GET /metrics
}

// Bounds of a reading: nobody who asks for all metrics waits for one part, nor is sent more than that has.
const (
	remoteTimeout = 2 * time.Second
	remoteLimit   = 1 << 20
)

// Gather implements prometheus.Gatherer. What does not answer counts nothing, and takes nothing from the other parts.
func (r Remote) Gather() ([]*dto.MetricFamily, error) {
	text, err := r.read()
	if err != nil {
		return nil, nil
	}
	defer text.Close()

	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(text, remoteLimit))
	if err != nil {
		return nil, nil
	}

	return slices.Collect(maps.Values(families)), nil
}

func (r Remote) read() (io.ReadCloser, error) {
	client := &http.Client{Timeout: remoteTimeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.Socket)
		},
	}}
	request, err := http.NewRequest(http.MethodGet, "http://localhost/metrics", nil)
	if err != nil {
		return nil, err
	}

	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("read metrics of %s: %s", r.Socket, response.Status)
	}

	return response.Body, nil
}
