package vswitch

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// withTag is a frame of a VLAN, with a priority of 5.
func withTag(f []byte, vlan byte) []byte {
	tagged := append([]byte(nil), f[:tagAt]...)
	return append(append(tagged, 0x81, 0x00, 0xa0, vlan), f[tagAt:]...)
}

// TestAccessPortsAndATrunk: two machines of VLAN 7 that know of no tags, one of VLAN 8, and one on a trunk.
func TestAccessPortsAndATrunk(t *testing.T) {
	s := newSwitch(t)
	pa, pb, pc, trunk := plug(t, s, "a"), plug(t, s, "b"), plug(t, s, "c"), plug(t, s, "trunk")
	pa.SetAccessVLAN(7)
	pb.SetAccessVLAN(7)
	pc.SetAccessVLAN(8)

	pa.Send(frame(everybody, a, "to all of 7"))
	pb.hears(t, "to all of 7")
	trunk.hears(t, "\x00\x07\x88\xb5to all of 7")

	trunk.Send(withTag(frame(everybody, everybody, "from the trunk"), 7))
	pa.hears(t, "from the trunk")
	pb.hears(t, "from the trunk")
	trunk.Send(withTag(frame(everybody, everybody, "to the others"), 8))
	pc.hears(t, "to the others")
	trunk.Send(frame(everybody, everybody, "without a tag"))

	// To an address that was learnt, and from one that sends what it may not.
	pb.Send(frame(a, b, "to a alone"))
	pa.hears(t, "to a alone")
	pa.Send(withTag(frame(everybody, a, "with a tag of its own"), 8))
	assert.EqualValues(t, 1, pa.Stats().Lost)
	pa.Send(withTag(frame(everybody, a, "with a priority"), 0))
	pb.hears(t, "with a priority")
	trunk.hears(t, "\xa0\x07\x88\xb5with a priority")

	pa.Send(frame(everybody, a, "the last word"))
	pb.hears(t, "the last word")
	trunk.hears(t, "\x00\x07\x88\xb5the last word")
	assert.Empty(t, pa.heard)
	assert.Empty(t, pc.heard)
}

// TestACableThatIsOut passes nothing.
func TestACableThatIsOut(t *testing.T) {
	s := newSwitch(t)
	pa, pb, pc := plug(t, s, "a"), plug(t, s, "b"), plug(t, s, "c")
	pb.SetFault(Fault{Out: true})
	pa.Send(frame(everybody, a, "b is unplugged"))
	pc.hears(t, "b is unplugged")
	assert.EqualValues(t, 1, pb.Stats().Lost)
	pb.SetFault(Fault{})
	pa.Send(frame(everybody, a, "b is back"))
	pb.hears(t, "b is back")
	pc.hears(t, "b is back")
}
