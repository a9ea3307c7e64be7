package metal3

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AdoptedBackup is the backup by which a server that runs is taken into service as it is: as if the appliance had
// installed it with the image that the site names, so that it is restored like any host that the API has lost
// (RestoredHost). have is its host, nil if it has none. Neither BMC nor disk is written to on the way.
//
// An adopted host has no UID yet: the one that is created gets its own, and the next backup has it.
func AdoptedBackup(n NodeObjects, have *metal3api.BareMetalHost) (HostBackup, error) {
	switch {
	case n.Own != "":
		return HostBackup{}, fmt.Errorf("its MAC %s is one of this appliance's own", n.Own)
	case n.BMC == nil && n.Host.Spec.BMC.Address == "":
		return HostBackup{}, errors.New("it has no BMC in site.yaml: the appliance leaves it as it is anyway")
	case n.Host.Spec.Image == nil:
		return HostBackup{}, errors.New("nothing says which image it has")
	case have == nil:
	case InService(have):
		return HostBackup{}, errors.New("it is in service already")
	case have.DeletionTimestamp != nil:
		return HostBackup{}, errors.New("its BareMetalHost is being removed; try again when it is gone")
	case have.Spec.Image != nil:
		return HostBackup{}, fmt.Errorf("it is being installed with image %q", imageURL(have.Spec.Image))
	}

	h := n.Host.DeepCopy()
	h.UID, h.Status = "", metal3api.BareMetalHostStatus{
		OperationalStatus: metal3api.OperationalStatusOK,
		PoweredOn:         true,
		Provisioning: metal3api.ProvisionStatus{
			State:    metal3api.StateProvisioned,
			Image:    *h.Spec.Image.DeepCopy(),
			BootMode: h.Spec.BootMode,
		},
	}
	if have != nil {
		h.Status.HardwareDetails = have.Status.HardwareDetails.DeepCopy()
	}

	return newBackup(h), nil
}

// isAdopted reports whether a backup is of a host that was taken into service as it is and not created since.
func (r HostBackup) isAdopted() bool { return r.IsLive() && r.Host.UID == "" }

// Adopt keeps the backup of an adopted host in place of one that is torn or of a host that is not in service.
func (r Backups) Adopt(rec HostBackup) error {
	old, err := os.ReadFile(filepath.Join(r.Dir, rec.Host.Name+".json"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.Log.Warn("host record cannot be read, and is replaced", "host", rec.Host.Name, "error", err)
	}
	if was, torn := decodeBackup(rec.Host.Name, old); err == nil && torn == nil && was.IsLive() {
		return errors.New("its record on DATA says that it is in service: it is being taken over again")
	}

	return r.write(rec, nil)
}

// forget deletes the host of a server that was adopted after its inspection, so that it is created again as one in
// service. Its own system does not run: the appliance has booted the ramdisk. The operator switches it off, and on
// again once it is in service.
func (s Reconciler) forget(ctx context.Context, have *metal3api.BareMetalHost) error {
	if err := client.IgnoreNotFound(s.Client.Delete(ctx, have)); err != nil {
		return fmt.Errorf("delete host %s to create it as adopted: %w", have.Name, err)
	}
	return nil
}
