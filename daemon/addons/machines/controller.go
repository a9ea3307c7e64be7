package machines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "firstlight.dev/firstlight/daemon/addons/machines/v1"
	"firstlight.dev/firstlight/daemon/engine/ctrlmanager"
)

// Scheme knows every kind that the controllers read or write.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, v1.AddToScheme)
	return s, kinds.AddToScheme(s)
}

// Run runs both controllers until ctx ends; image is that of launchers. Its Deployment starts no second one before the
// first has ended, and two would do no harm: names of pods and instances are decided by what they are of.
func Run(ctx context.Context, api *rest.Config, image string, log *slog.Logger) error {
	scheme, err := Scheme()
	if err != nil {
		return err
	}
	m, err := ctrlmanager.New(api, ctrlmanager.Options{
		Name:   FieldManager,
		Health: "0",
		Scheme: scheme,
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: labels.SelectorFromSet(labels.Set{v1.LabelApp: v1.AppLauncher})},
		}},
	}, log)
	if err != nil {
		return err
	}

	newOptions := func() controller.Options {
		return controller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute),
		}
	}
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	err = errors.Join(
		builder.ControllerManagedBy(m).Named("virtualmachine").
			For(&v1.VirtualMachine{}, changed).
			Owns(&v1.VirtualMachineInstance{}).
			WithOptions(newOptions()).
			Complete(&Machines{
				Client:   m.GetClient(),
				Recorder: m.GetEventRecorder(FieldManager),
				Now:      time.Now,
				Log:      log,
			}),
		builder.ControllerManagedBy(m).Named("virtualmachineinstance").
			For(&v1.VirtualMachineInstance{}, changed).
			Owns(&corev1.Pod{}).
			WithOptions(newOptions()).
			Complete(&Instances{
				Client:   m.GetClient(),
				Reader:   m.GetAPIReader(),
				Recorder: m.GetEventRecorder(FieldManager),
				Image:    image,
				Log:      log,
			}),
	)
	if err != nil {
		return fmt.Errorf("make controllers: %w", err)
	}
	return m.Start(ctx)
}
