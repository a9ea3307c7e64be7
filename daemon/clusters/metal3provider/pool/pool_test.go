package pool

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"firstlight.dev/firstlight/daemon/clusters/metal3provider/v1alpha1"
)

func address(s string) *v1alpha1.Address { a := v1alpha1.Address(s); return &a }

// TestAllocate: which address a claim gets, in the order in which that is decided.
func TestAllocate(t *testing.T) {
	subnet := func(s string) *string { return &s }
	between := func(start, end string) v1alpha1.Range {
		return v1alpha1.Range{Start: address(start), End: address(end)}
	}
	small := v1alpha1.IPPoolSpec{Pools: []v1alpha1.Range{between("10.0.0.10", "10.0.0.12"), between("10.0.1.1", "10.0.1.1")}, Prefix: 24}
	reserved := small
	reserved.PreAllocations = map[string]v1alpha1.Address{"b": "10.0.0.10"}
	outside := small
	outside.PreAllocations = map[string]v1alpha1.Address{"c": "10.9.0.1"}
	for _, c := range []struct {
		name  string
		spec  v1alpha1.IPPoolSpec
		asked string
		used  map[string]string
		want  string
		err   error
	}{
		{"the first", small, "", nil, "10.0.0.10", nil},
		{"the first that is free", small, "", map[string]string{"a": "10.0.0.10", "b": "10.0.0.12"}, "10.0.0.11", nil},
		{"the one it has", small, "", map[string]string{"c": "10.0.0.12"}, "10.0.0.12", nil},
		{"the one it has, which the pool has no more", small, "", map[string]string{"c": "10.9.0.1"}, "10.9.0.1", nil},
		{"of the next range", small, "", map[string]string{"a": "10.0.0.10", "b": "10.0.0.11", "d": "10.0.0.12"}, "10.0.1.1", nil},
		{"none", small, "", map[string]string{"a": "10.0.0.10", "b": "10.0.0.11", "d": "10.0.0.12", "e": "10.0.1.1"}, "", ErrExhausted},
		{"the one it asks for", small, "10.0.0.12", nil, "10.0.0.12", nil},
		{"one that another has", small, "10.0.0.12", map[string]string{"a": "10.0.0.12"}, "", ErrInUse},
		{"one that another is to have", reserved, "10.0.0.10", nil, "", ErrInUse},
		{"not one that another is to have", reserved, "", nil, "10.0.0.11", nil},
		{"one that is nowhere", small, "10.9.0.1", nil, "", ErrOutOfBounds},
		{"its own, that is nowhere", outside, "", nil, "", ErrOutOfBounds},
		{"a subnet alone", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Range{{Subnet: subnet("192.168.0.0/24")}}}, "", nil, "192.168.0.1", nil},
		{"the last of a subnet", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Range{{Subnet: subnet("192.168.0.0/30"), Start: address("192.168.0.3")}}}, "", nil, "192.168.0.3", nil},
		{"IPv6", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Range{{Subnet: subnet("fd00::/64")}}}, "", map[string]string{"a": "fd00::1"}, "fd00::2", nil},
		{"the only free one, at random", v1alpha1.IPPoolSpec{
			Pools: small.Pools[:1], AllocationStrategy: v1alpha1.StrategyRandom,
		}, "", map[string]string{"a": "10.0.0.10", "b": "10.0.0.11"}, "10.0.0.12", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			used := map[string]netip.Addr{}
			for k, v := range c.used {
				used[k] = netip.MustParseAddr(v)
			}
			got, err := Allocate(c.spec, "c", c.asked, used)
			require.ErrorIs(t, err, c.err)
			if err == nil {
				assert.Equal(t, c.want, got.Address.String())
			}
		})
	}
}

// TestWhatARangeSays comes before what the pool says.
func TestWhatARangeSays(t *testing.T) {
	spec := v1alpha1.IPPoolSpec{
		Prefix: 24, Gateway: address("10.0.0.1"), DNSServers: []v1alpha1.Address{"10.0.0.2"},
		Pools: []v1alpha1.Range{
			{Start: address("10.0.0.10"), End: address("10.0.0.10")},
			{Start: address("10.1.0.10"), End: address("10.1.0.10"), Prefix: 16, Gateway: address("10.1.0.1"), DNSServers: []v1alpha1.Address{"10.1.0.2"}},
		},
	}
	first, err := Allocate(spec, "a", "", nil)
	require.NoError(t, err)
	assert.Equal(t, Address{netip.MustParseAddr("10.0.0.10"), 24, "10.0.0.1", []string{"10.0.0.2"}}, first)
	second, err := Allocate(spec, "b", "", map[string]netip.Addr{"a": first.Address})
	require.NoError(t, err)
	assert.Equal(t, Address{netip.MustParseAddr("10.1.0.10"), 16, "10.1.0.1", []string{"10.1.0.2"}}, second)
	assert.Equal(t, []string{"10.1.0.2"}, DNSServers(spec, "10.1.0.10"))
	assert.Empty(t, DNSServers(spec, "10.9.0.1"))
}
