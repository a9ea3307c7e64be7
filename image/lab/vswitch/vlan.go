package vswitch

import "encoding/binary"

// A tag of IEEE 802.1Q-2018, 9.3, lies between the addresses of a frame and its type.
const (
	tagAt    = 12
	tagBytes = 4
	vlanBits = 0x0fff // of the tag's last two bytes: the VLAN; the others are its priority
)

// SetAccessVLAN makes the port an access port of a VLAN, 1 to 4094: what is plugged in sends and hears frames without
// a tag, on the switch and its trunks they have that of the VLAN. 0 makes it a trunk, which every port is at first:
// frames pass as they are.
func (p *Port) SetAccessVLAN(vlan int) {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	p.vlan = uint16(vlan)
}

// enter is a frame as the switch has it that came to a port; false: an access port takes none with a tag of a VLAN.
func (p *Port) enter(frame []byte) ([]byte, bool) {
	if p.vlan == 0 {
		return frame, true
	}

	switch tag, isTagged := vlanOf(frame); {
	case !isTagged:
		tagged := make([]byte, 0, len(frame)+tagBytes)
		tagged = append(tagged, frame[:tagAt]...)
		tagged = binary.BigEndian.AppendUint16(tagged, typeVLAN)
		tagged = binary.BigEndian.AppendUint16(tagged, p.vlan)
		return append(tagged, frame[tagAt:]...), true
	case tag == 0: // a priority and no VLAN
		tagged := append([]byte(nil), frame...)
		binary.BigEndian.PutUint16(tagged[tagAt+2:], binary.BigEndian.Uint16(frame[tagAt+2:])|p.vlan)
		return tagged, true
	}
	return nil, false
}

// leave is a frame of the switch as a port sends it; false: it is of another VLAN than the port.
func (p *Port) leave(frame []byte) ([]byte, bool) {
	if p.vlan == 0 {
		return frame, true
	}
	if vlan, isTagged := vlanOf(frame); !isTagged || vlan != p.vlan {
		return nil, false
	}

	untagged := make([]byte, 0, len(frame)-tagBytes)
	untagged = append(untagged, frame[:tagAt]...)
	return append(untagged, frame[tagAt+tagBytes:]...), true
}

// vlanOf is the VLAN of a frame's tag, 0 if that has a priority alone.
func vlanOf(frame []byte) (vlan uint16, isTagged bool) {
	if len(frame) < tagAt+tagBytes || binary.BigEndian.Uint16(frame[tagAt:]) != typeVLAN {
		return 0, false
	}
	return binary.BigEndian.Uint16(frame[tagAt+2:]) & vlanBits, true
}
