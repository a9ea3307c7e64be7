package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	contentapi "github.com/containerd/containerd/api/services/content/v1"
	imagesapi "github.com/containerd/containerd/api/services/images/v1"
	leasesapi "github.com/containerd/containerd/api/services/leases/v1"
	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"firstlight.dev/firstlight/daemon/engine/bringup"
)

const (
	namespace   = "k8s.io" // that of the container runtime interface
	snapshotter = "overlayfs"
	lease       = "firstlight-images"

	// Labels by which containerd's collector follows what belongs together (containerd, docs/garbage-collection.md).
	refSnapshot = "containerd.io/gc.ref.snapshot." + snapshotter
	refConfig   = "containerd.io/gc.ref.content.config"
	expires     = "containerd.io/gc.expire"

	// upperDir is the label by which the snapshotter says where the files of a snapshot are; its setting is
	// upperdir_label.
	upperDir = "containerd.io/snapshot/overlay.upperdir"
)

// containerd is a connection to it.
type containerd struct {
	images    imagesapi.ImagesClient
	content   contentapi.ContentClient
	snapshots snapshotsapi.SnapshotsClient
	leases    leasesapi.LeasesClient
}

// dial connects to containerd for a call.
func (c *Cluster) dial(call func(*grpc.ClientConn) error) error {
	conn, err := grpc.NewClient(
		"unix://"+c.path(containerdSocket), grpc.WithTransportCredentials(insecure.NewCredentials()),
	)
	if err != nil {
		return fmt.Errorf("ask containerd: %w", err)
	}
	defer conn.Close()

	return call(conn)
}

// containerd connects to containerd's own interface for a call.
func (c *Cluster) containerd(call func(*containerd) error) error {
	return c.dial(func(conn *grpc.ClientConn) error {
		return call(&containerd{images: imagesapi.NewImagesClient(conn), content: contentapi.NewContentClient(conn),
			snapshots: snapshotsapi.NewSnapshotsClient(conn), leases: leasesapi.NewLeasesClient(conn)})
	})
}

func withNamespace(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

// state waits for containerd as long as it does not answer.
func (d *containerd) state(ctx context.Context) (state, error) {
	s := state{images: map[string]heldImage{}, snapshots: map[string]string{}}
	images, err := d.images.List(withNamespace(ctx), &imagesapi.ListImagesRequest{})
	if err != nil {
		return s, bringup.Wait("containerd to list images: %v", err)
	}

	for _, i := range images.Images {
		s.images[i.Name] = heldImage{digest: i.Target.GetDigest(), synced: i.Labels[synced] != ""}
	}

	list, err := d.snapshots.List(withNamespace(ctx), &snapshotsapi.ListSnapshotsRequest{Snapshotter: snapshotter})
	if err != nil {
		return s, bringup.Wait("containerd to list snapshots: %v", err)
	}

	for {
		part, err := list.Recv()
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, bringup.Wait("containerd to list snapshots: %v", err)
		}

		for _, i := range part.Info {
			if i.Kind == snapshotsapi.Kind_COMMITTED {
				s.snapshots[i.Name] = i.Labels[upperDir]
			}
		}
	}
}

// withLease keeps what a call makes from containerd's collector until the call has returned, or for an hour
// if it does not.
func (d *containerd) withLease(ctx context.Context, now time.Time, call func(context.Context) error) error {
	request := &leasesapi.CreateRequest{
		ID:     lease,
		Labels: map[string]string{expires: now.Add(time.Hour).UTC().Format(time.RFC3339)},
	}
	end := func() error {
		if _, err := d.leases.Delete(
			withNamespace(ctx), &leasesapi.DeleteRequest{ID: lease},
		); err != nil && status.Code(err) != codes.NotFound {
			return fmt.Errorf("end lease of containerd: %w", err)
		}
		return nil
	}
	if err := end(); err != nil { // of a call that was cut off
		return err
	}
	if _, err := d.leases.Create(withNamespace(ctx), request); err != nil {
		return fmt.Errorf("begin lease of containerd: %w", err)
	}
	if err := call(metadata.AppendToOutgoingContext(ctx, "containerd-lease", lease)); err != nil {
		return err
	}

	return end()
}

// snapshot makes a snapshot without files and returns where its files belong.
func (d *containerd) snapshot(ctx context.Context, s snapshot) (at string, err error) {
	ctx = withNamespace(ctx)
	key := "firstlight-" + s.chain
	_, err = d.snapshots.Remove(
		ctx, &snapshotsapi.RemoveSnapshotRequest{Snapshotter: snapshotter, Key: key},
	) // half made
	if err != nil && status.Code(err) != codes.NotFound {
		return "", fmt.Errorf("remove snapshot %s: %w", key, err)
	}
	if _, err := d.snapshots.Prepare(
		ctx, &snapshotsapi.PrepareSnapshotRequest{Snapshotter: snapshotter, Key: key, Parent: s.parent},
	); err != nil {
		return "", fmt.Errorf("prepare snapshot %s: %w", key, err)
	}
	if _, err := d.snapshots.Commit(
		ctx, &snapshotsapi.CommitSnapshotRequest{Snapshotter: snapshotter, Name: s.chain, Key: key},
	); err != nil {
		return "", fmt.Errorf("commit snapshot %s: %w", s.chain, err)
	}

	made, err := d.snapshots.Stat(ctx, &snapshotsapi.StatSnapshotRequest{Snapshotter: snapshotter, Key: s.chain})
	if err != nil {
		return "", fmt.Errorf("find snapshot %s: %w", s.chain, err)
	}

	return made.Info.Labels[upperDir], nil
}

// putBlob stores a blob with labels.
func (d *containerd) putBlob(ctx context.Context, b blob, labels map[string]string) error {
	ctx = withNamespace(ctx)
	ref, sum := "firstlight-"+b.Digest.String(), b.Digest.String()
	err := d.write(ctx, &contentapi.WriteContentRequest{
		Action:   contentapi.WriteAction_COMMIT,
		Ref:      ref,
		Total:    b.Size,
		Expected: sum,
		Data:     b.data,
		Labels:   labels,
	})
	if status.Code(err) != codes.AlreadyExists {
		if err != nil {
			_, _ = d.content.Abort(
				ctx, &contentapi.AbortRequest{Ref: ref},
			) // begun by somebody who was cut off; there may be nothing
			return fmt.Errorf("store %s: %w", sum, err)
		}
		return nil
	}

	request := &contentapi.UpdateRequest{
		Info:       &contentapi.Info{Digest: sum, Labels: labels},
		UpdateMask: &fieldmaskpb.FieldMask{},
	}
	for label := range labels {
		request.UpdateMask.Paths = append(request.UpdateMask.Paths, "labels."+label)
	}

	if _, err := d.content.Update(ctx, request); err != nil {
		return fmt.Errorf("label %s: %w", sum, err)
	}

	return nil
}

func (d *containerd) write(ctx context.Context, request *contentapi.WriteContentRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := d.content.Write(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(request); err != nil && !errors.Is(err, io.EOF) { // the answer says why it ended
		return err
	}

	_, err = stream.Recv()
	return err
}

// name gives an image that is all there its name, which another may have.
func (d *containerd) name(ctx context.Context, i image) error {
	target := &types.Descriptor{
		MediaType: i.manifest.MediaType,
		Digest:    i.manifest.Digest.String(),
		Size:      i.manifest.Size,
	}
	named := &imagesapi.Image{Name: i.name, Target: target, Labels: map[string]string{synced: "true"}}
	_, err := d.images.Create(withNamespace(ctx), &imagesapi.CreateImageRequest{Image: named})
	if status.Code(err) == codes.AlreadyExists {
		_, err = d.images.Update(withNamespace(ctx), &imagesapi.UpdateImageRequest{Image: named})
	}

	if err != nil {
		return fmt.Errorf("name image %s: %w", i.name, err)
	}

	return nil
}

// removeImage takes a name from an image.
func (d *containerd) removeImage(ctx context.Context, name string) error {
	_, err := d.images.Delete(withNamespace(ctx), &imagesapi.DeleteImageRequest{Name: name})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("forget image %s: %w", name, err)
	}
	return nil
}
