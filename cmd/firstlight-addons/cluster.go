package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

// connect returns clients of the cluster that this pod is on.
func connect() (kubernetes.Interface, dynamic.Interface, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("find the cluster: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("find the cluster: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("find the cluster: %w", err)
	}
	return client, objects, nil
}

// newEvents records Events until stop is called. node is "" for a part that is not of one.
func newEvents(c *cobra.Command, client kubernetes.Interface, component, node string) (events record.EventRecorder, stop func()) {
	all := record.NewBroadcaster(record.WithContext(c.Context()))
	all.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return all.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component, Host: node}), all.Shutdown
}

func newLog(c *cobra.Command) *slog.Logger {
	return slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
}
