package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"firstlight.dev/firstlight/assets"
	"firstlight.dev/firstlight/assets/status"
	"firstlight.dev/firstlight/daemon/clusters/bpa/v1alpha1"
	"firstlight.dev/firstlight/daemon/clusters/contract"
)

// rotateCluster asks for other authorities of a cluster; names is its name alone.
func (d *Daemon) rotateCluster(names []string) (string, error) {
	if len(names) != 1 {
		return "", fmt.Errorf("%d clusters are named; name one: firstlightd rotate cluster NAME", len(names))
	}
	clusters, known := d.cluster.known()
	if !known {
		return "", errors.New("the clusters are being read; try again in a minute")
	}
	text, err := os.ReadFile(filepath.Join(contract.Dir, filepath.Base(names[0]), contract.FileRotation))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	c, err := findRotatable(clusters, names[0], contract.ReadRotation(text))
	if err != nil {
		return "", err
	}

	api, err := d.metal.Client()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := askRotation(ctx, api, c, time.Now()); err != nil {
		return "", err
	}
	return fmt.Sprintf("The authorities of cluster %s are replaced, on one node after another, while its pods run. Then the "+
		"kubeconfig of before is worth nothing: fetch the next one (firstlightd kubeconfig %[1]s). The former authorities are "+
		"trusted for %d hours more. firstlightd why %[1]s says how far it is. Make an away copy afterwards.",
		c.Name, int(contract.RotationSettle.Hours())), nil
}

// findRotatable is the cluster of a name, if its authorities can be replaced now; last is its last rotation.
func findRotatable(clusters []status.Cluster, name string, last contract.Rotation) (status.Cluster, error) {
	i := slices.IndexFunc(clusters, func(c status.Cluster) bool { return c.Name == name })
	if i < 0 {
		return status.Cluster{}, fmt.Errorf("there is no cluster %s; firstlightd status lists them", name)
	}

	switch c := clusters[i]; {
	case c.Kind != status.KindProvisioning:
		return c, fmt.Errorf("cluster %s is of Cluster API, which has no way to replace its authorities; make another cluster", name)
	case isBeingChanged(c):
		return c, fmt.Errorf("cluster %s is being changed; wait until it is ready (firstlightd why %[1]s)", name)
	case c.State != status.ClusterReady:
		return c, fmt.Errorf("cluster %s is %s, and not ready; firstlightd why %[1]s says what to do", name, c.State)
	case last.IsUnderway():
		return c, fmt.Errorf("the authorities of cluster %s are being replaced already; firstlightd why %[1]s says how far it is", name)
	default:
		return c, nil
	}
}

// askRotation writes the token of a rotation on the Provisioning of a cluster, whose operator does it.
func askRotation(ctx context.Context, api client.Client, c status.Cluster, now time.Time) error {
	var all v1alpha1.ProvisioningList
	if err := api.List(ctx, &all, client.InNamespace(c.Namespace)); err != nil {
		return fmt.Errorf("list Provisionings: %w", err)
	}
	for i := range all.Items {
		p := &all.Items[i]
		if p.Status.Cluster != c.Name {
			continue
		}
		if image := p.Spec.InstallerImage; image != "" && image != assets.InstallerImage {
			const text = "cluster %s was installed by %s, which replaces its authorities; see its documentation"
			return fmt.Errorf(text, c.Name, image)
		}
		before := p.DeepCopy()
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationRotation, now.UTC().Format("20060102T150405Z"))
		if err := api.Patch(ctx, p, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("write Provisioning %s/%s: %w", p.Namespace, p.Name, err)
		}
		return nil
	}
	return fmt.Errorf("cluster %s has no Provisioning in namespace %s any more", c.Name, c.Namespace)
}
