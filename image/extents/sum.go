package extents

// BlockSize is how many bytes a sum is of. Files that are smaller are not looked for.
const BlockSize = 4096

// The sum is that of Karp and Rabin, modulo 2^64: its high bits depend on all bytes, and it is 0 for zeros.
const factor = 0x9e3779b97f4a7c15

var power = func() uint64 {
	p := uint64(1)
	for range BlockSize - 1 {
		p *= factor
	}
	return p
}()

func sum(block []byte) (h uint64) {
	for _, b := range block {
		h = h*factor + uint64(b)
	}
	return h
}

// roll is the sum of the block one byte further on, which leaves first behind and takes last in.
func roll(h uint64, first, last byte) uint64 {
	return (h-uint64(first)*power)*factor + uint64(last)
}
