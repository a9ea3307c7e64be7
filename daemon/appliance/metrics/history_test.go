package metrics

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"

	"firstlight.dev/firstlight/assets/status"
)

// TestTheLastHourIsKept: a sample each minute, summed over labels but for the states of nodes, and no more than an hour.
func TestTheLastHourIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		sent := prometheus.NewCounterVec(prometheus.CounterOpts{Name: ContainerBytes}, []string{"x"})
		other := prometheus.NewGauge(prometheus.GaugeOpts{Name: "other"})
		nodes := 1
		r.MustRegister(sent, other, StatusCollector{Document: func() (d status.Document) {
			for i := range nodes {
				d.Nodes = append(d.Nodes, status.Node{Name: fmt.Sprint("n", i), State: "provisioned"})
			}
			return d
		}})
		ctx, cancel := context.WithCancel(t.Context())
		h := &History{From: r, Log: slog.New(slog.DiscardHandler)}
		go func() { assert.NoError(t, h.Run(ctx)) }()
		synctest.Wait()
		assert.Equal(t, []Sample{{time.Now(), map[string]float64{NodeState + "/provisioned": 1}}}, h.Samples())

		sent.WithLabelValues("a").Add(3)
		sent.WithLabelValues("b").Add(4)
		nodes = 2
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		all := h.Samples()
		assert.Len(t, all, historyKept)
		assert.Equal(t, time.Hour, all[len(all)-1].Time.Sub(all[0].Time))
		assert.Equal(t, map[string]float64{ContainerBytes: 7, NodeState + "/provisioned": 2}, all[0].Values)
		cancel()
		synctest.Wait()
	})
}
