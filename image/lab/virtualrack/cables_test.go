package virtualrack

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFindCards(t *testing.T) {
	m := MachineSpec{Cards: []Card{{Network: provisioning}, {Network: bmcs}, {Network: provisioning}}}
	for _, c := range []struct {
		which Cables
		want  []int
		text  string
	}{
		{Cables{}, []int{0, 1, 2}, "at all"},
		{Cables{Network: provisioning}, []int{0, 2}, "to network provisioning"},
		{Cables{Network: provisioning, Card: 2}, []int{2}, "to network provisioning with number 2"},
		{Cables{Card: 2}, []int{1}, "at all with number 2"},
		{Cables{Network: bmcs, Card: 2}, nil, "to network bmc with number 2"},
		{Cables{Card: -1}, nil, "at all with number -1"},
		{Cables{Network: data}, nil, "to network data"},
	} {
		assert.Equal(t, c.want, m.findCards(c.which), c.text)
		assert.Equal(t, c.text, c.which.String())
	}
}
