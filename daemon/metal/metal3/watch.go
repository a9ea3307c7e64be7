package metal3

import (
	"context"
	"fmt"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scheme knows the kinds that are handed over.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, metal3api.AddToScheme)
	return s, kinds.AddToScheme(s)
}

// perHost is how long a picture of the hosts lasts at least, for each of them: it is made from copies of all, and
// while a thousand are registered one of them changes all the time.
const perHost = time.Millisecond

// askEvery is how often the API is asked whether it still answers for the hosts.
const askEvery = 10 * time.Second

// Watch keeps the picture as the API has it until ctx ends; changed is told (without
// waiting for it) after every update. It returns an error if the watch cannot be set up,
// for instance while the API has no such kind; call it again then.
func (h *Hosts) Watch(ctx context.Context, config *rest.Config, changed chan<- struct{}) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}

	store, err := cache.New(config, cache.Options{
		Scheme:            scheme,
		DefaultNamespaces: map[string]cache.Config{Namespace: {}},
	})
	if err != nil {
		return fmt.Errorf("watch hosts: %w", err)
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	informer, err := store.GetInformer(ctx, &metal3api.BareMetalHost{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch hosts: %w", err)
	}

	stale := make(chan struct{}, 1)
	poke := func() {
		select {
		case stale <- struct{}{}:
		default:
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { poke() },
		UpdateFunc: func(any, any) { poke() },
		DeleteFunc: func(any) { poke() },
	}); err != nil {
		return fmt.Errorf("watch hosts: %w", err)
	}

	ended := make(chan error, 1)
	go func() { ended <- store.Start(ctx) }()
	if !store.WaitForCacheSync(ctx) {
		return fmt.Errorf("watch hosts: %w", context.Cause(ctx))
	}

	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("watch hosts: %w", err)
	}

	poke() // no host at all is news too
	beat := time.NewTicker(askEvery)
	defer beat.Stop()
	for {
		var from client.Reader = store
		var options []client.ListOption
		select {
		case err := <-ended:
			return err
		case <-stale:
		case <-beat.C:
			// Silence of a watch is no news: it is silent too when its server is dead. After a silence the API
			// itself is believed, for the watch takes some time to begin anew.
			from = api
			if h.SilentSince(time.Now()).IsZero() {
				options = append(options, client.Limit(1))
			}
		}

		asking, done := context.WithTimeout(ctx, askEvery/2)
		var list metal3api.BareMetalHostList
		err := from.List(asking, &list, append(options, client.InNamespace(Namespace))...)
		done()
		switch {
		case from == api && err != nil:
			h.Log.Debug("hosts not asked for", "error", err)
			continue
		case err != nil:
			return fmt.Errorf("list hosts: %w", err)
		case len(options) > 0:
			h.markAnswered()
			continue
		}

		if err := h.Set(list.Items); err != nil {
			h.Log.Error("host record cannot be written", "error", err)
		}

		select {
		case changed <- struct{}{}:
		default:
		}

		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(len(list.Items)) * perHost):
		}
	}
}
