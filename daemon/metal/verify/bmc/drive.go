package bmc

import (
	"context"
	"errors"
	"slices"

	"firstlight.dev/firstlight/assets/site"
)

// maxDrives bounds how many drives and managers of a server are asked for.
const maxDrives = 16

// ErrNoDrive says that a BMC lists no drive for discs.
var ErrNoDrive = errors.New("the BMC lists no virtual drive for CDs or DVDs")

// CheckDrive asks a BMC by Redfish whether its server has a virtual drive for CDs or DVDs: one of the system (schema
// ComputerSystem, VirtualMedia), or where the system lists none, one of its managers, as Ironic looks. The error is
// ErrNoDrive, or says why it could not be asked. The BMC took the password before.
func (client Client) CheckDrive(ctx context.Context, b site.BMC) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	address, err := systemURL(b)
	if err != nil {
		return err
	}

	c := client.http(b)
	defer c.CloseIdleConnections()
	var system struct {
		VirtualMedia link
		Links        struct{ ManagedBy []link }
	}
	if err := getJSON(ctx, c, *address, address.Path, b, &system); err != nil {
		return err
	}

	lists := []link{system.VirtualMedia}
	if system.VirtualMedia.Path == "" {
		lists = nil
		for _, m := range system.Links.ManagedBy[:min(len(system.Links.ManagedBy), maxDrives)] {
			var manager struct{ VirtualMedia link }
			if err := getJSON(ctx, c, *address, m.Path, b, &manager); err != nil {
				return err
			}
			lists = append(lists, manager.VirtualMedia)
		}
	}

	for _, list := range lists {
		if list.Path == "" {
			continue
		}

		var drives struct{ Members []link }
		if err := getJSON(ctx, c, *address, list.Path, b, &drives); err != nil {
			return err
		}
		for _, d := range drives.Members[:min(len(drives.Members), maxDrives)] {
			var drive struct{ MediaTypes []string }
			if err := getJSON(ctx, c, *address, d.Path, b, &drive); err != nil {
				return err
			}
			if slices.Contains(drive.MediaTypes, "CD") || slices.Contains(drive.MediaTypes, "DVD") {
				return nil
			}
		}
	}

	return ErrNoDrive
}
