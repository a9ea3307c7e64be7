package metal3

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	metal3api "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"firstlight.dev/firstlight/assets/inspection"
	"firstlight.dev/firstlight/assets/label"
)

// givenUp is a host that its owner has given up, with two disks that hold data.
func givenUp() (*metal3api.BareMetalHost, Contents) {
	h := &metal3api.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "uid-1", Annotations: map[string]string{}},
		Spec: metal3api.BareMetalHostSpec{
			BMC:             metal3api.BMCDetails{Address: "redfish://10.0.0.1/x"},
			RootDeviceHints: &metal3api.RootDeviceHints{SerialNumber: "A"},
		},
	}
	h.Status.Provisioning.State = metal3api.StateAvailable
	h.Status.HardwareDetails = &metal3api.HardwareDetails{Storage: []metal3api.Storage{
		{Name: "/dev/sda", SerialNumber: "A", SizeBytes: 480e9},
		{Name: "/dev/disk/by-path/pci-2", AlternateNames: []string{"/dev/sdb"}, SerialNumber: "B", WWN: "0x5b", SizeBytes: 960e9},
	}}
	return h, Contents{
		"/dev/sda": {Kinds: []string{"gpt"}, Fingerprint: "data-00000000000a"},
		"/dev/sdb": {Kinds: []string{"ext4"}, Fingerprint: "data-00000000000b"},
	}
}

// TestCheckErase: which disks are erased, and every way in which a host is refused.
func TestCheckErase(t *testing.T) {
	live := HostBackup{Host: metal3api.BareMetalHost{}}
	live.Host.Status.Provisioning.State = metal3api.StateProvisioned
	for _, c := range []struct {
		name   string
		change func(*EraseRequest)
		disks  []string // serial numbers
		error  string
	}{
		{"its root device alone", func(*EraseRequest) {}, []string{"A"}, ""},
		{"a disk by its serial number", func(r *EraseRequest) { r.Names = []string{"B"} }, []string{"B"}, ""},
		{"by its WWN and by its name", func(r *EraseRequest) { r.Names = []string{"0x5b", "/dev/sda"} }, []string{"B", "A"}, ""},
		{"the disk that it was installed on", func(r *EraseRequest) {
			r.Host.Spec.RootDeviceHints = nil
			r.Host.Status.Provisioning.RootDeviceHints = &metal3api.RootDeviceHints{SerialNumber: "B"}
		}, []string{"B"}, ""},
		{"a root device that is not known", func(r *EraseRequest) { r.Host.Spec.RootDeviceHints = nil }, nil, "its root device is not known: rootDevice fits 2 disks"},
		{"no such disk", func(r *EraseRequest) { r.Names = []string{"C"} }, nil, `"C" names 0 of its disks: /dev/sda`},
		{"no name", func(r *EraseRequest) { r.Names = []string{""} }, nil, `"" names 0 of its disks`},
		{"a disk twice", func(r *EraseRequest) { r.Names = []string{"B", "/dev/sdb"} }, nil, "its disk /dev/sdb is named twice"},
		{"two disks with one serial number", func(r *EraseRequest) {
			r.Host.Status.HardwareDetails.Storage[1].SerialNumber = "A"
			r.Host.Status.HardwareDetails.Storage[1].WWN = ""
		}, nil, "fits 2 disks"},
		{"two disks with one WWN", func(r *EraseRequest) {
			for i := range r.Host.Status.HardwareDetails.Storage {
				r.Host.Status.HardwareDetails.Storage[i].WWN = "0x1"
			}
		}, nil, "cannot be told from another one"},
		{"a disk without a number", func(r *EraseRequest) {
			r.Host.Status.HardwareDetails.Storage[0].SerialNumber = ""
			r.Names = []string{"/dev/sda"}
		}, nil, "has neither serial number nor WWN"},
		{"in service", func(r *EraseRequest) { r.Host.Status.Provisioning.State = metal3api.StateProvisioned }, nil, "it is in service; to give it up"},
		{"in service, as its record says", func(r *EraseRequest) { r.Record = live }, nil, "it is in service"},
		{"a record that is torn", func(r *EraseRequest) { r.Record.Unreadable = "x.json: it is torn" }, nil, "cannot be read, so it may be in service"},
		{"externally provisioned", func(r *EraseRequest) { r.Host.Spec.ExternallyProvisioned = true }, nil, "externally provisioned"},
		{"a member of a cluster", func(r *EraseRequest) {
			r.Host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "m-1"}
		}, nil, "Metal3Machine m-1 uses it"},
		{"about to be installed", func(r *EraseRequest) { r.Host.Spec.Image = &metal3api.Image{URL: "http://x/i"} }, nil, "it is being installed"},
		{"being inspected", func(r *EraseRequest) { r.Host.Status.Provisioning.State = metal3api.StateInspecting }, nil, "it is inspecting"},
		{"being deprovisioned", func(r *EraseRequest) { r.Host.Status.Provisioning.State = metal3api.StateDeprovisioning }, nil, "it is deprovisioning"},
		{"being removed", func(r *EraseRequest) { r.Host.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, nil, "is being removed"},
		{"paused", func(r *EraseRequest) { r.Host.Annotations[annotationPaused] = "me" }, nil, "its owner has paused it"},
		{"on hold", func(r *EraseRequest) { r.Host.Annotations[annotationPaused] = label.Hold }, nil, "its checks have not passed yet"},
		{"without a BMC", func(r *EraseRequest) { r.HasBMC = false }, nil, "it has no BMC"},
		{"not inspected", func(r *EraseRequest) { r.Found = nil }, nil, "it is not known what is on its disks"},
		{"installed since it was inspected", func(r *EraseRequest) {
			r.Host.Status.OperationHistory.Inspect.Start = metav1.NewTime(time.Now().Add(-time.Hour))
			r.Host.Status.OperationHistory.Provision.End = metav1.Now()
		}, nil, "it is not known what is on its disks now"},
		{"given up since it was inspected", func(r *EraseRequest) {
			r.Host.Status.OperationHistory.Inspect.Start = metav1.NewTime(time.Now().Add(-time.Hour))
			r.Host.Status.OperationHistory.Deprovision.End = metav1.Now()
		}, nil, "it is not known what is on its disks now"},
		{"inspected since it was given up", func(r *EraseRequest) {
			r.Host.Status.OperationHistory.Provision.End = metav1.NewTime(time.Now().Add(-time.Hour))
			r.Host.Status.OperationHistory.Inspect.Start = metav1.Now()
		}, []string{"A"}, ""},
		{"a disk that was not seen", func(r *EraseRequest) { delete(r.Found, "/dev/sda") }, nil, "it is not known what its disk /dev/sda holds"},
		{"a disk that cannot be read", func(r *EraseRequest) { r.Found["/dev/sda"] = inspection.Disk{Unreadable: "I/O error"} }, nil, "cannot be read: I/O error"},
		{"no host", func(r *EraseRequest) { r.Host = nil }, nil, "it has no BareMetalHost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, found := givenUp()
			r := EraseRequest{Host: h, Found: found, HasBMC: true}
			c.change(&r)
			disks, err := CheckErase(r)
			if c.error != "" {
				require.ErrorContains(t, err, c.error)
				return
			}
			require.NoError(t, err)
			var serials []string
			for _, d := range disks {
				serials = append(serials, d.Serial)
				assert.NotEmpty(t, d.Holds.Fingerprint)
			}
			assert.Equal(t, c.disks, serials)
		})
	}
}

// asked is an erasure of the first disk of a host that was given up, which the operator leaves alone.
func asked(t *testing.T) (Erasure, *metal3api.BareMetalHost) {
	h, found := givenUp()
	disks, err := CheckErase(EraseRequest{Host: h, Found: found, HasBMC: true})
	require.NoError(t, err)
	h.Annotations[annotationPaused] = label.Erasing
	return Erasure{Host: "uid-1", Asked: time.Now(), Disks: disks}, h
}

// TestCheckErasedDisk: what a ramdisk may erase, right before the first byte.
func TestCheckErasedDisk(t *testing.T) {
	a := WriteDisk{Name: "/dev/sdc", Serial: "A"} // its name is another one in this boot
	seen := inspection.Disk{Kinds: []string{"gpt"}, Fingerprint: "data-00000000000a"}
	other := inspection.Disk{Kinds: []string{"xfs"}, Fingerprint: "data-00000000000c"}
	for _, c := range []struct {
		name   string
		disk   WriteDisk
		holds  inspection.Disk
		change func(*Erasure, *metal3api.BareMetalHost)
		error  string
	}{
		{"as it was seen", a, seen, nil, ""},
		{"blank", a, inspection.Disk{}, nil, ""},
		{"another disk", WriteDisk{Name: "/dev/sda", Serial: "B"}, seen, nil, "is not one that is to be erased"},
		{"its name alone", WriteDisk{Name: "/dev/sda"}, seen, nil, "is not one that is to be erased"},
		{"its serial number with a WWN", WriteDisk{Name: "/dev/sda", Serial: "A", WWN: "0x1"}, seen, nil, "is not one that is to be erased"},
		{"with other data", a, other, nil, "is not as inspection saw it, it holds: xfs (data-00000000000c)"},
		{"from a ramdisk that makes no fingerprints", a, inspection.Disk{Kinds: []string{"gpt"}}, nil, "is not as inspection saw it"},
		{"half erased", a, other, func(e *Erasure, _ *metal3api.BareMetalHost) { e.Disks[0].Begun = time.Now() }, ""},
		{"erased, and blank", a, inspection.Disk{}, func(e *Erasure, _ *metal3api.BareMetalHost) { e.Disks[0].Erased = time.Now() }, ""},
		{"erased, and written to since", a, other, func(e *Erasure, _ *metal3api.BareMetalHost) {
			e.Disks[0].Begun, e.Disks[0].Erased = time.Now(), time.Now()
		}, "is not as inspection saw it"},
		{"unreadable", a, inspection.Disk{Unreadable: "I/O error"}, nil, "cannot be read"},
		{"locked, half erased", a, inspection.Disk{Unreadable: "I/O error"}, func(e *Erasure, _ *metal3api.BareMetalHost) {
			e.Disks[0].Begun = time.Now()
		}, ""},
		{"erased, and unreadable", a, inspection.Disk{Unreadable: "I/O error"}, func(e *Erasure, _ *metal3api.BareMetalHost) {
			e.Disks[0].Begun, e.Disks[0].Erased = time.Now(), time.Now()
		}, "cannot be read"},
		{"ended", a, seen, func(e *Erasure, _ *metal3api.BareMetalHost) { e.Ended = time.Now() }, "no disk of host node-1 is to be erased"},
		{"of another host", a, seen, func(e *Erasure, _ *metal3api.BareMetalHost) { e.Host = "uid-2" }, "no disk of host node-1 is to be erased"},
		{"refused before", a, seen, func(e *Erasure, _ *metal3api.BareMetalHost) { e.Refused = "x" }, "no disk of host node-1 is to be erased"},
		{"cancelled", a, seen, func(e *Erasure, _ *metal3api.BareMetalHost) { e.Cancelled = time.Now() }, "has cancelled its erasure"},
		{"in service", a, seen, func(_ *Erasure, h *metal3api.BareMetalHost) { h.Status.Provisioning.State = metal3api.StateProvisioned }, "not given up"},
		{"with an image", a, seen, func(_ *Erasure, h *metal3api.BareMetalHost) { h.Spec.Image = &metal3api.Image{URL: "x"} }, "not given up"},
		{"with a consumer", a, seen, func(_ *Erasure, h *metal3api.BareMetalHost) { h.Spec.ConsumerRef = &corev1.ObjectReference{} }, "not given up"},
		{"not paused", a, seen, func(_ *Erasure, h *metal3api.BareMetalHost) { delete(h.Annotations, annotationPaused) }, "not given up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, h := asked(t)
			if c.change != nil {
				c.change(&e, h)
			}
			_, err := CheckErasedDisk(e, h, SeenDisk{WriteDisk: c.disk, Holds: c.holds})
			if c.error == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.error)
			}
		})
	}
}

// TestAnErasureIsCancelledBeforeTheFirstByte, and never afterwards.
func TestAnErasureIsCancelledBeforeTheFirstByte(t *testing.T) {
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	e, _ := asked(t)
	require.NoError(t, e.Cancel(at))
	require.NoError(t, e.Cancel(at.Add(time.Hour)), "the answer was lost")
	assert.Equal(t, at, e.Cancelled)
	assert.Contains(t, e.Sentence(), "is not erased: its owner has cancelled that before anything was written")
	assert.False(t, e.HasFailed())
	e.Ended = at
	assert.False(t, e.HasFailed())
	assert.Equal(t, "was not erased: its owner cancelled that on 2026-03-04 12:00:00 UTC, before anything was written", e.Sentence())

	e, _ = asked(t)
	e.Disks[0].Begun = at
	require.EqualError(t, e.Cancel(at), "disk /dev/sda serialNumber A is being erased since 2026-03-04 12:00:00 UTC, or is already: "+
		"it is too late, and all that was named is erased")
	assert.Zero(t, e.Cancelled)
	require.Error(t, (&Erasure{Host: "uid-1", Lost: true}).Cancel(at))
}

// TestAReportCountsWhateverBecameOfTheHost: the disk was let be erased, and is.
func TestAReportCountsWhateverBecameOfTheHost(t *testing.T) {
	e, h := asked(t)
	a := WriteDisk{Name: "/dev/sdc", Serial: "A"}
	_, err := CheckReport(e, h, a)
	require.ErrorContains(t, err, "was not let be erased")
	e.Disks[0].Begun, e.Refused = time.Now(), "another disk is not as it was"
	h.Annotations[annotationPaused] = "me"
	i, err := CheckReport(e, h, a)
	require.NoError(t, err)
	assert.Zero(t, i)
	_, err = CheckReport(e, h, WriteDisk{Name: "/dev/sda", Serial: "B"})
	require.Error(t, err)
	e.Host = "uid-2"
	_, err = CheckReport(e, h, a)
	require.Error(t, err)
}

// TestADiskWithoutNumbersIsTheSame: it was the only one of its server, which is looked at again before each first byte,
// also when an earlier try has begun.
func TestADiskWithoutNumbersIsTheSame(t *testing.T) {
	seen := inspection.Disk{Kinds: []string{"gpt"}, Fingerprint: "data-00000000000a"}
	for _, c := range []struct {
		name          string
		bytes         int64
		others        int
		holds         inspection.Disk
		error, begunE string // before a try has begun, and afterwards
	}{
		{"as it was", 480e9, 0, seen, "", ""},
		{"blank", 480e9, 0, inspection.Disk{Kinds: []string{}}, "", ""},
		{"half overwritten", 480e9, 0, inspection.Disk{Kinds: []string{unknownData}, Fingerprint: "data-3"}, "is not as inspection saw it", ""},
		{"of another size", 960e9, 0, seen, "it is another one", "it is another one"},
		{"blank, of another size", 960e9, 0, inspection.Disk{}, "it is another one", "it is another one"},
		{"beside a new one", 480e9, 1, seen, "the server has 1 more disks now", "the server has 1 more disks now"},
		{"in its place", 480e9, 0, inspection.Disk{Kinds: []string{"xfs"}, Fingerprint: "data-2"}, "is not as inspection saw it", "it could be another one; it holds: xfs"},
		{"in its place, of the same kind", 480e9, 0, inspection.Disk{Kinds: []string{"gpt"}, Fingerprint: "data-2"}, "is not as inspection saw it", "it could be another one; it holds: gpt"},
		{"in its place, unreadable", 480e9, 0, inspection.Disk{Unreadable: "I/O error"}, "cannot be read", "it could be another one; it holds: I/O error"},
	} {
		for _, begun := range []bool{false, true} {
			want := c.error
			h, found := givenUp()
			h.Status.HardwareDetails.Storage = h.Status.HardwareDetails.Storage[:1]
			h.Status.HardwareDetails.Storage[0].SerialNumber = ""
			disks, err := CheckErase(EraseRequest{Host: h, Found: found, HasBMC: true, Names: []string{"/dev/sda"}})
			require.NoError(t, err)
			h.Annotations[annotationPaused] = label.Erasing
			e := Erasure{Host: "uid-1", Asked: time.Now(), Disks: disks}
			if begun {
				want, e.Disks[0].Begun = c.begunE, time.Now()
			}
			_, err = CheckErasedDisk(e, h, SeenDisk{WriteDisk: WriteDisk{Name: "/dev/sda"}, Holds: c.holds, Bytes: c.bytes, Others: c.others})
			if want == "" {
				require.NoError(t, err, "%s, begun %t", c.name, begun)
			} else {
				require.ErrorContains(t, err, want, "%s, begun %t", c.name, begun)
			}
		}
	}
}

// TestErasuresOutliveTheDaemon, and one that is torn permits nothing.
func TestErasuresOutliveTheDaemon(t *testing.T) {
	dir := t.TempDir()
	s := &Ledger[Erasure]{Dir: dir}
	e, _ := asked(t)
	require.NoError(t, s.Begin("node-1", e))
	require.ErrorContains(t, s.Begin("node-1", e), "done already")
	require.NoError(t, s.Edit("node-1", func(e *Erasure) error { e.Disks[0].Begun = time.Now(); return nil }))
	refused := errors.New("no")
	require.ErrorIs(t, s.Edit("node-1", func(e *Erasure) error { e.Tries = 7; return refused }), refused)

	s = &Ledger[Erasure]{Dir: dir}
	open, err := s.Open()
	require.NoError(t, err)
	require.Len(t, open, 1)
	assert.False(t, open["node-1"].Disks[0].Begun.IsZero())
	assert.Zero(t, open["node-1"].Tries)
	assert.Contains(t, open["node-1"].Sentence(), "is being erased, 0 of 1 disks done; next /dev/sda serialNumber A")
	require.NoError(t, s.Edit("node-1", func(e *Erasure) error {
		e.Disks[0].Erased, e.Disks[0].Method, e.Ended = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC), MethodNVMe, time.Now()
		e.Disks[0].Compared, e.Disks[0].Unattached = 512, 2
		return nil
	}))
	require.ErrorIs(t, s.Edit("node-1", func(*Erasure) error { return nil }), ErrNoneOpen)
	e, err = s.Last("node-1")
	require.NoError(t, err)
	assert.Equal(t, "was erased: /dev/sda serialNumber A on 2026-03-04 12:00:00 UTC by the drive's own format with secure erase (NVMe)"+
		" (none of 512 blocks with data reads as before), and 2 namespaces of its drive that are not attached were not erased",
		e.Sentence())
	e.Disks[0].Unattached = -1
	assert.Contains(t, e.Sentence(), ", and its drive does not tell whether it has namespaces that are not attached")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "node-2.json"), []byte("[{"), 0o600))
	s = &Ledger[Erasure]{Dir: dir}
	_, err = s.Last("node-2")
	require.ErrorContains(t, err, "cannot be read")
	require.ErrorContains(t, s.Begin("node-2", e), "cannot be read")
	open, err = s.Open()
	require.NoError(t, err)
	assert.Empty(t, open)
	require.NoError(t, os.Rename(filepath.Join(dir, "node-2.json"), filepath.Join(t.TempDir(), "torn")))
	e, err = s.Last("node-2")
	require.NoError(t, err, "it was moved away, as it says")
	assert.False(t, e.IsOpen())
}
