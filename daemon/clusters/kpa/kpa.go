// Package kpa brings the operator of Components onto the appliance: its kind, its rights and its pod. What the operator
// does is in package operator below; docs/addons.md walks through it.
package kpa

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets/artifact"
	"firstlight.dev/firstlight/assets/crd"
	"firstlight.dev/firstlight/assets/label"
	"firstlight.dev/firstlight/assets/stick"
	"firstlight.dev/firstlight/daemon/clusters/kpa/operator"
	"firstlight.dev/firstlight/daemon/engine/apply"
	"firstlight.dev/firstlight/daemon/engine/bringup"
	"firstlight.dev/firstlight/daemon/engine/daemonpod"
	"firstlight.dev/firstlight/daemon/engine/rights"
)

// Names of the operator's objects. It is in the namespace of the operator of clusters, where pods may have files of the
// appliance; its ServiceAccount is its own.
const (
	Namespace = "bpa"
	Name      = "kpa-operator"
)

// owner is the field manager of the operator's objects.
const owner = "firstlight-kpa"

// account is the operator's.
var account = rights.Account{Namespace: Namespace, Name: Name}

// ownersRole is what the operator may do in namespaces that have Components.
const ownersRole = Name + "-owners"

// Sources of Components, on the appliance and in the pod: folders, and what was uploaded.
const (
	folder  = stick.DataDir + "/components"
	bundles = artifact.Dir + "/" + artifact.BundlesDir
)

// health is the port of the readiness probe, on the loopback.
const health = 8385

// Objects is all that the operator needs, in the order of application. Another digest of the daemon's binary starts
// another pod.
func Objects(digest string) ([]client.Object, error) {
	kind, err := readKind()
	if err != nil {
		return nil, err
	}

	meta := metav1.ObjectMeta{Namespace: Namespace, Name: Name}
	everywhere, own, owners := operator.NewRights()
	return []client.Object{
		kind.DeepCopy(),
		&corev1.Namespace{TypeMeta: typeMeta("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: Namespace}},
		account.Object(),
		rights.NewClusterRole(Name, everywhere),
		account.BindEverywhere(Name),
		rights.NewRole(Namespace, Name, own),
		account.Bind(Namespace, "Role", Name),
		rights.NewClusterRole(ownersRole, owners),
		daemonpod.NewDeployment(meta, map[string]string{label.Binary: digest}, manager().Spec()),
	}, nil
}

// readKind reads the definition of Component, once: the stage of the operator asks for it all the time.
var readKind = sync.OnceValues(func() (*unstructured.Unstructured, error) {
	kind := &unstructured.Unstructured{}
	if err := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(crd.KPA), 4096).Decode(kind); err != nil {
		return nil, fmt.Errorf("read definition of Component: %w", err)
	}
	return kind, nil
})

func typeMeta(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

// manager is the operator's pod.
func manager() daemonpod.Manager {
	return daemonpod.Manager{
		Command: "kpa",
		Args:    []string{"--namespace", Namespace, "--folder", folder, "--bundles", bundles},
		User:    65532, // who owns the uploads, too
		Health:  health,
		Folders: []daemonpod.Folder{
			{Name: "folder", Path: folder, ReadOnly: true},
			{Name: "bundles", Path: bundles, ReadOnly: true},
		},
	}
}

// Stage is the fact that the operator runs. digest is that of the daemon's binary.
func Stage(digest func() (string, error), api func() (client.Client, error)) bringup.Stage {
	stage := apply.Stage{
		Name:  "kpa-ready",
		Title: "The add-ons' operator starts",
		Fact:  "the operator of what runs on clusters runs",
		Why:   "It follows Ready: what runs on clusters needs a cluster first, and no node waits for it.",
		Owner: owner,
		Objects: func() ([]client.Object, error) {
			d, err := digest()
			if err != nil {
				return nil, err
			}
			return Objects(d)
		},
		API:       api,
		Doing:     "applying the operator of components",
		StaleOnly: true,
		Ready: func(ctx context.Context, c client.Client) error {
			return apply.CheckRolledOut(ctx, c, client.ObjectKey{Namespace: Namespace, Name: Name}, "the pod of "+Name)
		},
	}.Bringup()
	stage.AfterReady = true
	return stage
}

// GrantNamespaces gives the operator its rights in each namespace that has a Component.
func (a Components) GrantNamespaces(ctx context.Context, c client.Client) error {
	var namespaces []string
	for _, component := range a.all {
		namespaces = append(namespaces, component.Namespace)
	}
	return account.Grant(ctx, c, owner, ownersRole, namespaces)
}
