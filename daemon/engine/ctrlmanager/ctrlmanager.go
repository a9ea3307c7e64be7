// Package ctrlmanager makes the controller-runtime managers of the appliance's operators, all with the same patience: a
// machine under load is slow, not lost.
package ctrlmanager

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Options are what operators differ in.
type Options struct {
	Name      string // of the operator; its lock is NAME-lock
	Namespace string // of the lock
	Elect     bool   // wait until no other operator of that name runs
	Metrics   string // address; "" or "0" for none
	Health    string // address of /readyz; "0" for none

	Scheme *runtime.Scheme
	Cache  cache.Options // managed fields are left out, unless it says otherwise
}

// SetLogger has log take all that the libraries of controllers say.
func SetLogger(log *slog.Logger) logr.Logger {
	logger := logr.FromSlogHandler(log.Handler())
	ctrllog.SetLogger(logger)
	klog.SetSlogLogger(log)
	return logger
}

// New returns a manager without controllers. It answers /readyz, and takes log for all that its libraries say. It listens
// at the address of /readyz from now on, and until its controllers have ended: an error if another manager does.
func New(api *rest.Config, o Options, log *slog.Logger) (manager.Manager, error) {
	logger := SetLogger(log)
	if o.Metrics == "" {
		o.Metrics = "0"
	}
	if o.Cache.DefaultTransform == nil {
		o.Cache.DefaultTransform = cache.TransformStripManagedFields()
	}

	m, err := manager.New(api, manager.Options{
		Scheme:                        o.Scheme,
		Logger:                        logger,
		Metrics:                       server.Options{BindAddress: o.Metrics},
		HealthProbeBindAddress:        o.Health,
		LeaderElection:                o.Elect,
		LeaderElectionID:              o.Name + "-lock",
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		// By default it would give up after ten seconds of silence.
		LeaseDuration: ptr.To(time.Minute),
		RenewDeadline: ptr.To(40 * time.Second),
		RetryPeriod:   ptr.To(10 * time.Second),
		Cache:         o.Cache,
		// Names of controllers are for metrics; tests run several operators in one process.
		Controller: config.Controller{SkipNameValidation: ptr.To(true), CacheSyncTimeout: 10 * time.Minute},
	})
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	if err := m.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, fmt.Errorf("add readiness check: %w", err)
	}

	return m, nil
}
